// How a receiving host shares its line among its senders: enough credit in total to keep the line busy, but so little
// that switches need not store it. Most of it goes to the best level.
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

  // All senders together may have line rate x round trip, plus `slack` bytes, on their way; `line_rate` in bytes/s.
  // `trip` is the round trip of the rack; a sender farther away (`trip` of the other functions) gets more in
  // proportion.
  CreditShare(std::uint64_t line_rate, Duration trip, std::uint64_t slack, std::uint32_t segment)
      : line_rate_(static_cast<double>(line_rate)),
        trip_(trip),
        slack_(slack),
        segment_(segment),
        total_(total(trip)),
        most_(std::max<std::uint64_t>(1, total_ / (2 * segment))) {}

  // The credit of a connection that has posted receives, before anything arrives: its part, as one of `receivers`
  // connections, of three fifths of the total. So a connection that begins need not ask, and all may begin at once. 0
  // if that much is already promised: the connection has to ask. Credit cannot be taken back, so the first to post must
  // not get what the last will need.
  std::uint32_t promise(std::uint32_t receivers) {
    const std::uint64_t most = total_ / 5 * 3;
    const std::uint64_t part = std::max<std::uint64_t>(2, most / std::max(1u, receivers) / segment_) * segment_;
    if (promised_ + part > most) return 0;
    promised_ += part;
    return static_cast<std::uint32_t>(part);
  }
  void promise_over(std::uint32_t bytes) { promised_ -= bytes; }
  // The same part of the line as `bytes` of a promise, for a connection whose round trip is `trip`.
  std::uint32_t at(Duration trip, std::uint32_t bytes) const {
    return static_cast<std::uint32_t>(static_cast<double>(bytes) * static_cast<double>(all(trip)) /
                                      static_cast<double>(total_));
  }
  // The credit of a connection that is being served, by its level: connections of the best level share seven eighths,
  // the others the rest, so that nobody starves and the line is not idle if the best have little to send.
  std::uint32_t window(std::uint8_t level, Duration trip) const {
    const std::uint64_t first = served_[best_];
    const std::uint64_t all = this->all(trip);
    const std::uint64_t others = serving_ > first ? all / 8 : 0;
    const std::uint64_t part =
        level > best_ ? others / (serving_ - first) : (all - others) / std::max<std::uint64_t>(1, first);
    return static_cast<std::uint32_t>(std::max<std::uint64_t>(segment_, part));
  }

  // Whether this level goes before others that are being served.
  bool leads(std::uint8_t level) const { return level == best_ && served_[best_] < serving_; }

  // Serves one more connection; false: it has to wait until another one ends.
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
  // A sender far away learns of an eighth of its window at a time, half a round trip late.
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
