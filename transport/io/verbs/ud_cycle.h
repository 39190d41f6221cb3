// When a queue pair goes on that failed by what a link that is down may explain, and when it does no more. One per
// queue pair. Pure: times are arguments.
//
// It goes on kPause after it was found to have failed, not earlier: so a link that stays down costs a bounded number of
// calls, and receives that the NIC had taken have come back by then.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "transport/base/time.h"

namespace clustar::transport::io::verbs {

class UdCycle {
 public:
  static constexpr Duration kPause = std::chrono::milliseconds(10);
  // What was posted has come back by then, or never does.
  static constexpr Duration kDrain = std::chrono::seconds(1);
  // Of failing though the port is active.
  static constexpr Duration kPatience = std::chrono::seconds(10);
  // A failure that is longer ago says nothing of the next one: a device that sends nothing cannot fail.
  static constexpr Duration kMemory = std::chrono::seconds(5);
  // A device that has worked for so long is well again; a success before that may be what passes between two failures.
  static constexpr Duration kProof = std::chrono::seconds(1);

  // `link_patience`: of failing while the port is not active, or now and then.
  explicit UdCycle(Duration link_patience) : link_patience_(link_patience) {}

  bool down() const { return down_; }
  // It is down, or was so recently that it may still be given up for it.
  bool troubled() const { return down_ || since_.has_value(); }
  enum class Verdict : std::uint8_t {
    kGoesOn,
    kPort,  // given up: its port was not active for too long, or came and went
    kPair,  // given up: the port was active all the time, so it is not that
  };

  // Each time that it is found to have failed, or cannot go on.
  Verdict on_failure(TimePoint now, bool port_active);
  bool due(TimePoint now) const { return down_ && now - down_at_ >= kPause; }
  bool overdue(TimePoint now) const { return down_ && now - down_at_ >= kDrain; }
  void on_resumed(TimePoint now);
  void on_success(TimePoint now);  // of a send, since then

 private:
  const Duration link_patience_;
  bool down_ = false;
  TimePoint down_at_{};
  TimePoint resumed_at_{};
  std::optional<TimePoint> since_{};         // of failing
  std::optional<TimePoint> active_since_{};  // and the port was active each time
};

// Up to when all that was complete has been taken from a completion queue, also where it is never found empty because
// packets come as fast as they are taken: `most` completions after a time, none from before it is left. Pure.
class UdSweep {
 public:
  // `most`: that can wait at once; at least 1.
  explicit UdSweep(std::size_t most) : most_(most) {}

  // `count` completions were taken just now, 0: there was none; what was complete at `now` comes before what came
  // later. A time: whatever was complete then has been taken.
  std::optional<TimePoint> on_taken(std::size_t count, TimePoint now);

 private:
  const std::size_t most_;
  TimePoint since_{};
  std::size_t left_ = 0;  // 0: a new one begins
};

}  // namespace clustar::transport::io::verbs
