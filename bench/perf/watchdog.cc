#include "bench/perf/watchdog.h"

#include <fmt/format.h>
#include <unistd.h>

#include <utility>

namespace clustar::bench::perf {

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Watchdog::begin(std::string command, std::chrono::milliseconds limit) {
  {
    const std::lock_guard lock(mutex_);
    command_ = std::move(command);
    limit_ = limit;
    ++generation_;
  }
  changed_.notify_all();
}

void Watchdog::end() {
  {
    const std::lock_guard lock(mutex_);
    command_.clear();
    ++generation_;
  }
  changed_.notify_all();
}

void Watchdog::loop() {
  using Time = std::chrono::steady_clock;
  std::unique_lock lock(mutex_);
  while (!stop_) {
    changed_.wait(lock, [this] { return stop_ || !command_.empty(); });
    const std::uint64_t generation = generation_;
    std::uint64_t seen = progress_.load(std::memory_order_relaxed);
    auto since = Time::now();
    const auto over = [&] { return stop_ || generation_ != generation; };
    while (!changed_.wait_for(lock, std::chrono::seconds(1), over)) {
      const std::uint64_t now = progress_.load(std::memory_order_relaxed);
      if (now != seen) {
        seen = now;
        since = Time::now();
        if (!control_.send({{"alive", now}})) _exit(1);  // nobody is left to measure for
      } else if (Time::now() - since > limit_) {
        control_.send(
            to_json(Error{ErrorCode::kRemote, fmt::format("no progress in '{}' for {} s (--timeout)", command_,
                                                          std::chrono::duration<double>(limit_).count())}));
        _exit(1);
      }
    }
  }
}

}  // namespace clustar::bench::perf
