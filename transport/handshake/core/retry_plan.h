// When a connecting side tries again to reach a listener, and at which of its endpoints; in given time.
#pragma once

#include <cstddef>
#include <optional>

#include "transport/base/result.h"
#include "transport/base/time.h"

namespace clustar::transport::handshake {

class RetryPlan {
 public:
  // Per try, from the first SYN until the sockets are connected; afterwards only the peer's host bounds the wait, since
  // the listener's process accepts when NCCL gets there.
  static constexpr Duration kConnectTimeout = std::chrono::seconds(20);
  // From the first failure. A refusal may pass (rules that are just being set up), and a listener takes a process that
  // was paused in mid-greeting for a stranger; a listener that is gone stays gone.
  static constexpr Duration kRetryTimeout = std::chrono::seconds(1);
  static constexpr Duration kRetryInterval = std::chrono::milliseconds(50);

  explicit RetryPlan(std::size_t endpoints) : endpoints_(endpoints) {}

  bool due(TimePoint now) const { return failures_ == 0 || now >= next_try_; }
  void begin(TimePoint now) { began_ = now; }
  std::size_t endpoint() const { return endpoint_; }  // of the current try, or the next
  bool too_late(TimePoint now) const { return now - began_ > kConnectTimeout; }
  // The current try failed. Nothing while there is time for another, otherwise the error to report, which is the first;
  // at once what is not the peer's failure.
  std::optional<Error> on_failure(const Error& error, TimePoint now);

 private:
  std::size_t endpoints_;
  std::size_t endpoint_ = 0;
  std::size_t failures_ = 0;
  TimePoint began_{};
  TimePoint first_failure_{};
  TimePoint next_try_{};
  Error first_error_{};
};

}  // namespace clustar::transport::handshake
