// How much is to be ahead at a NIC so that its line never stands still: as much as it takes between two looks, whatever
// its speed is said to be. Pure; the owner locks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "transport/base/time.h"

namespace clustar::transport {

// As Linux' byte queue limits do it (dql, T. Herbert, 2011). Where all that the limit allowed had left before anybody
// looked, the line stood still for the limit: it doubles. What never left within a window was too much, and goes: so on
// a line that is slower than its sender no more is ahead than `least`.
class DrainLimit {
 public:
  static constexpr std::uint64_t kMost = 4 * 1024 * 1024;
  static constexpr Duration kWindow = std::chrono::milliseconds(10);

  explicit DrainLimit(std::uint64_t least, std::uint64_t most = kMost)
      : least_(least), most_(std::clamp(most, least, std::max(least, kMost))), bytes_(least) {}

  std::uint64_t bytes() const { return bytes_; }
  std::uint64_t least() const { return least_; }
  // So many bytes of what was handed on are still here, whatever keeps them. Before more is.
  void look(std::uint64_t here, TimePoint now) {
    if (held_ && here == 0 && bytes_ < most_) {
      bytes_ = std::min(2 * bytes_, most_);
      begin(now);
    }
    held_ = false;
    surplus_ = std::min(surplus_, here);
    if (now - since_ < kWindow) return;
    bytes_ = std::max(least_, bytes_ - std::min(bytes_, surplus_));
    begin(now);
  }
  // The limit kept something from being handed on.
  void hold() { held_ = true; }
  // It does not apply for now: what was seen before says nothing about the time after.
  void rest(TimePoint now) {
    held_ = false;
    begin(now);
  }

 private:
  void begin(TimePoint now) {
    since_ = now;
    surplus_ = std::numeric_limits<std::uint64_t>::max();
  }

  const std::uint64_t least_, most_;
  std::uint64_t bytes_;
  std::uint64_t surplus_ = std::numeric_limits<std::uint64_t>::max();  // never less was here since `since_`
  TimePoint since_{};
  bool held_ = false;
};

}  // namespace clustar::transport
