#include "paraexpress/torch/finishers.h"

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

namespace clustar::torch_backend {
namespace {

constexpr std::size_t kMost = 64;

struct Finishers {
  std::mutex mutex{};
  std::condition_variable wake{};
  std::deque<std::function<void()>> calls{};
  std::size_t threads = 0, idle = 0;
};

// Never destroyed: its threads wait in it while the process ends.
Finishers& all() {
  static auto* const finishers = new Finishers;
  return *finishers;
}

void serve() {
  Finishers& mine = all();
  std::unique_lock lock(mine.mutex);
  for (;;) {
    ++mine.idle;
    mine.wake.wait(lock, [&] { return !mine.calls.empty(); });
    --mine.idle;
    auto call = std::move(mine.calls.front());
    mine.calls.pop_front();
    lock.unlock();
    call();
    call = nullptr;  // what it holds may go with Python's lock, so not with ours
    lock.lock();
  }
}

}  // namespace

void finish_later(std::function<void()> call) {
  Finishers& mine = all();
  const std::lock_guard lock(mine.mutex);
  mine.calls.push_back(std::move(call));
  if (mine.calls.size() > mine.idle && mine.threads < kMost) {
    ++mine.threads;
    std::thread(serve).detach();
  }
  mine.wake.notify_one();
}

}  // namespace clustar::torch_backend
