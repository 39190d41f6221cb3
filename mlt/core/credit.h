// How a receiving host shares its line among those who send to it: enough credit in total to keep the line busy, little
// enough that a switch need not store it; and of that, most to the best level of what is sent.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace clustar::mlt {

class CreditShare {
 public:
  static constexpr std::uint64_t kMaxWindow = 1u << 30;  // bytes of any connection's credit
  static constexpr std::uint8_t kLevels = 16;

  // `total`: bytes that all senders together may have under way: line rate x round trip and some slack.
  CreditShare(std::uint64_t total, std::uint32_t segment)
      : total_(std::clamp<std::uint64_t>(total, segment, kMaxWindow)),
        segment_(segment),
        most_(std::max<std::uint64_t>(1, total_ / (2 * segment))) {}

  // A connection has posted receives and nothing came yet: its part, as one of `receivers` connections, of three fifths
  // of the total, so that whoever begins need not ask and all may begin at once; when so much is promised, 0: it has to
  // ask. Credit cannot be taken back, so the first to post may not have what the last will need.
  std::uint32_t promise(std::uint32_t receivers) {
    const std::uint64_t most = total_ / 5 * 3;
    const std::uint64_t part = std::max<std::uint64_t>(2, most / std::max(1u, receivers) / segment_) * segment_;
    if (promised_ + part > most) return 0;
    promised_ += part;
    return static_cast<std::uint32_t>(part);
  }
  void promise_over(std::uint32_t bytes) { promised_ -= bytes; }
  // Of a connection that is being served, by its level: those of the best one share seven eighths, the others what is
  // left, so that nobody starves, and the line is not idle where the best have little to send.
  std::uint32_t window(std::uint8_t level) const {
    const std::uint64_t first = served_[best_];
    const std::uint64_t others = serving_ > first ? total_ / 8 : 0;
    const std::uint64_t part =
        level > best_ ? others / (serving_ - first) : (total_ - others) / std::max<std::uint64_t>(1, first);
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
  std::uint64_t total_;
  std::uint32_t segment_;
  std::uint64_t most_;  // served at once: each needs two segments under way
  std::uint64_t serving_ = 0;
  std::array<std::uint32_t, kLevels> served_{};
  std::uint8_t best_ = kLevels - 1;  // no served connection has a better one
  std::uint64_t promised_ = 0;       // bytes, to connections from which nothing came yet
};

}  // namespace clustar::mlt
