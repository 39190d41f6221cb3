// How a receiving host shares its line among those who send to it: enough credit in total to keep the line busy, little
// enough that a switch need not store it; and of that, most to the best level of what is sent.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "transport/base/time.h"

namespace clustar::mlt {

class CreditShare {
 public:
  static constexpr std::uint64_t kMaxWindow = 1u << 30;  // bytes of any connection's credit
  static constexpr std::uint8_t kLevels = 16;

  // All senders together may have line rate x round trip and `slack` bytes under way; `line_rate` in bytes/s. `trip` of
  // the rack: who is farther away (the other functions' `trip`) has as much more as its packets are longer under way.
  CreditShare(std::uint64_t line_rate, Duration trip, std::uint64_t slack, std::uint32_t segment)
      : line_rate_(static_cast<double>(line_rate)),
        trip_(trip),
        slack_(slack),
        segment_(segment),
        total_(total(trip)),
        most_(std::max<std::uint64_t>(1, total_ / (2 * segment))) {}

  // A connection has posted receives and nothing came yet: its part, as one of `receivers` connections, of three fifths
  // of the total, so that a connection that begins need not ask and all may begin at once; when so much is promised, 0:
  // it has to ask. Credit cannot be taken back, so the first to post may not have what the last will need.
  std::uint32_t promise(std::uint32_t receivers) {
    const std::uint64_t most = total_ / 5 * 3;
    const std::uint64_t part = std::max<std::uint64_t>(2, most / std::max(1u, receivers) / segment_) * segment_;
    if (promised_ + part > most) return 0;
    promised_ += part;
    return static_cast<std::uint32_t>(part);
  }
  void promise_over(std::uint32_t bytes) { promised_ -= bytes; }
  // As much of the line as `bytes` of a promise are, for a connection whose round trip is `trip`.
  std::uint32_t at(Duration trip, std::uint32_t bytes) const {
    return static_cast<std::uint32_t>(static_cast<double>(bytes) * static_cast<double>(all(trip)) /
                                      static_cast<double>(total_));
  }
  // Of a connection that is being served, by its level: those of the best one share seven eighths, the others what is
  // left, so that nobody starves, and the line is not idle where the best have little to send.
  std::uint32_t window(std::uint8_t level, Duration trip) const {
    const std::uint64_t first = served_[best_];
    const std::uint64_t all = this->all(trip);
    const std::uint64_t others = serving_ > first ? all / 8 : 0;
    const std::uint64_t part =
        level > best_ ? others / (serving_ - first) : (all - others) / std::max<std::uint64_t>(1, first);
    return static_cast<std::uint32_t>(std::max<std::uint64_t>(segment_, part));
  }

  // Whether it goes before others that are being served.
  bool leads(std::uint8_t level) const { return level == best_ && served_[best_] < serving_; }

  // One more connection is served; false: it has to wait until another one ends.
  bool begin(std::uint8_t level) {
    if (serving_ >= most_) return false;
    ++serving_;
    ++served_[level];
    best_ = std::min(best_, level);
    return true;
  }
  void end(std::uint8_t level) {
    --serving_;
    --served_[level];
    while (best_ + 1 < kLevels && served_[best_] == 0) ++best_;
  }
  bool room() const { return serving_ < most_; }
  std::uint64_t serving() const { return serving_; }

 private:
  // A sender far away is told of an eighth of its window at a time, and what it is told is half a round trip old.
  std::uint64_t all(Duration trip) const { return trip > trip_ ? total(trip + trip / 4) : total_; }
  std::uint64_t total(Duration trip) const {
    const double under_way = line_rate_ * std::chrono::duration<double>(trip).count();
    return std::clamp<std::uint64_t>(static_cast<std::uint64_t>(under_way) + slack_, segment_, kMaxWindow);
  }

  double line_rate_;
  Duration trip_;
  std::uint64_t slack_;
  std::uint32_t segment_;
  std::uint64_t total_;
  std::uint64_t most_;  // served at once: each needs two segments under way
  std::uint64_t serving_ = 0;
  std::array<std::uint32_t, kLevels> served_{};
  std::uint8_t best_ = kLevels - 1;  // no served connection has a better one
  std::uint64_t promised_ = 0;       // bytes, to connections from which nothing came yet
};

}  // namespace clustar::mlt
