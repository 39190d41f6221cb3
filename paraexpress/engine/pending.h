// Something that was started and ends later, with a result or an error: shared by who started it and the thread that
// does it, so that either may go first.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <utility>

#include "transport/base/result.h"

namespace clustar::paraexpress {

// Thread rule: any thread.
template <class T>
class Pending {
 public:
  // Once.
  void end(Result<T> result) {
    const std::lock_guard lock(mutex_);
    outcome_ = std::move(result);
    changed_.notify_all();
  }
  bool done() const {
    const std::lock_guard lock(mutex_);
    return outcome_.has_value();
  }
  Result<T> wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return outcome_.has_value(); });
    return *outcome_;
  }
  // Since its start.
  std::chrono::steady_clock::duration age() const { return std::chrono::steady_clock::now() - start_; }

 private:
  mutable std::mutex mutex_{};
  std::condition_variable changed_{};
  std::optional<Result<T>> outcome_{};
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace clustar::paraexpress
