#include "tests/nccl_host/runtime/stream.h"

#include <utility>

namespace nccl_host {

Stream::Stream() : thread_([this] { Run(); }) {}

Stream::~Stream() {
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

uint64_t Stream::Add(std::function<void()> work) {
  std::lock_guard lock(mutex_);
  queue_.push_back(std::move(work));
  changed_.notify_all();
  return ++added_;
}

bool Stream::Done(uint64_t number) const {
  std::lock_guard lock(mutex_);
  return done_ >= number;
}

void Stream::Wait(uint64_t number) const {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return done_ >= number; });
}

bool Stream::Idle() const {
  std::lock_guard lock(mutex_);
  return done_ == added_;
}

void Stream::Synchronize() const {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this, number = added_] { return done_ >= number; });
}

void Stream::Run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return ending_ || !queue_.empty(); });
    if (queue_.empty()) return;
    std::function<void()> work = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    work();
    work = nullptr;
    lock.lock();
    ++done_;
    changed_.notify_all();
  }
}

}  // namespace nccl_host
