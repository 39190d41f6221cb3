#include "bench/trainer/data/loader.h"

#include <chrono>
#include <exception>
#include <string>
#include <utility>

namespace clustar::bench::trainer {

std::size_t usual_prefetch(const Dataset& dataset) {
  return dataset.files.empty() && dataset.stored_side == 0 ? 0 : kDefaultPrefetch;
}

Loader::Loader(const Dataset& dataset, std::size_t prefetch) : dataset_(dataset), prefetch_(prefetch) {
  if (prefetch > 0) thread_ = std::thread([this] { prepare_ahead(); });
}

Loader::~Loader() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Loader::expect(std::span<const std::uint32_t> examples) {
  {
    const std::lock_guard lock(mutex_);
    expected_.emplace_back(examples.begin(), examples.end());
  }
  changed_.notify_all();
}

// Nothing may be thrown out of the thread.
void Loader::prepare(const Dataset& dataset, Slot& slot) {
  try {
    slot.outcome = gather(dataset, slot.examples, slot.batch);
  } catch (const std::exception& error) {
    slot.outcome = fail(ErrorCode::kInternal, std::string("cannot prepare a batch: ") + error.what());
  }
}

void Loader::prepare_ahead() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return over_ || has_work(); });
    if (over_) return;
    Slot slot;
    slot.examples = std::move(expected_.front());
    expected_.pop_front();
    if (!spare_.empty()) {
      slot.batch = std::move(spare_.back());
      spare_.pop_back();
    }
    preparing_ = true;
    lock.unlock();
    prepare(dataset_, slot);
    lock.lock();
    preparing_ = false;
    prepared_.push_back(std::move(slot));
    changed_.notify_all();
  }
}

// Files end by themselves, so that the wait does, too.
Loader::Slot Loader::take() {
  std::unique_lock lock(mutex_);
  if (prefetch_ == 0) {
    Slot slot;
    slot.examples = std::move(expected_.front());
    slot.batch = std::move(current_.batch);
    expected_.pop_front();
    return slot;
  }
  if (current_.batch.x.capacity() > 0) spare_.push_back(std::exchange(current_.batch, {}));
  changed_.wait(lock, [&] { return !prepared_.empty(); });
  Slot slot = std::move(prepared_.front());
  prepared_.pop_front();
  changed_.notify_all();
  return slot;
}

Result<const Batch*> Loader::next() {
  const auto start = std::chrono::steady_clock::now();
  current_ = take();
  if (prefetch_ == 0) prepare(dataset_, current_);
  waited_s_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (!current_.outcome) return tl::unexpected(current_.outcome.error());
  return &current_.batch;
}

void Loader::skip() { current_ = take(); }

}  // namespace clustar::bench::trainer
