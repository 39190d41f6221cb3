// How much of what was handed to the kernel or the NIC has not left, over all connections of a NIC: there nothing
// overtakes it any more, so under a policy that orders it is bounded. Pure; the owner locks.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "transport/base/time.h"

namespace clustar::transport {

// A connection that is stuck (its peer's window is shut, or all of its own is on its way) keeps nobody else from the
// line: nothing of it counts. One that waits for its turn on a slow line looks alike, so time alone does not tell:
// stuck is whose kStep, or all that it has, did not leave within kPatience, while of all connections kTurns times as
// much left as was here when its wait began, or less than kStep at all. It stays so until it moves. Where a step takes
// longer than kPatience (chunks of 64 KiB: below 100 Mbit/s) more may be ahead than was asked for. A backend that hands
// on chunks passes over the stuck: what they were given more would not leave either.
class AheadMeter {
 public:
  using ConnectionId = std::uint32_t;
  static constexpr Duration kPatience = std::chrono::milliseconds(5);
  static constexpr std::uint64_t kStep = 16 * 1024;
  static constexpr std::uint64_t kTurns = 4;

  // `most`: send_ahead_bytes().
  explicit AheadMeter(std::uint64_t most) : most_(most) {}

  bool bounded() const { return most_ != std::numeric_limits<std::uint64_t>::max(); }
  // Whether the next chunk may be handed on, if so much more than `most` may be here.
  bool room(TimePoint now, std::uint64_t more = 0) const { return !bounded() || bytes(now) < most_ + more; }
  // What is still here, but for the stuck.
  std::uint64_t bytes(TimePoint now) const;
  std::uint64_t bytes_with_stuck() const { return here_bytes_; }

  void add(ConnectionId connection, std::uint64_t bytes, TimePoint now);
  // So much of what was handed on by the connection is still here.
  void set(ConnectionId connection, std::uint64_t bytes, TimePoint now);
  void forget(ConnectionId connection);
  bool stuck(ConnectionId connection, TimePoint now) const {
    return connection < connections_.size() && stuck(connections_[connection], now);
  }
  // Connections of which something is still here: those to ask before room().
  const std::vector<ConnectionId>& connections() const { return here_; }

 private:
  struct Connection {
    std::uint64_t bytes = 0;
    std::uint64_t watched = 0;  // of them: kStep, or all that there was, at `since`; less what has left
    TimePoint since{};
    std::uint64_t enough = 0;  // departed_ by which it would have had its turn
    bool stuck = false;
  };
  bool stuck(const Connection& one, TimePoint now) const {
    if (one.bytes == 0 || one.stuck) return one.stuck;
    return now - one.since > kPatience && (departed_ >= one.enough || now - line_since_ > kPatience);
  }

  const std::uint64_t most_;
  std::uint64_t here_bytes_ = 0;
  std::uint64_t departed_ = 0;      // bytes of all connections that have left
  std::uint64_t line_watched_ = 0;  // kStep at line_since_, less what has left
  TimePoint line_since_{};
  std::vector<Connection> connections_;
  std::vector<ConnectionId> here_;
};

}  // namespace clustar::transport
