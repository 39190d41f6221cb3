// The DSCP of what a sender's order puts first, and of what it puts last: CLUSTAR_SEND_DSCP.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

namespace clustar::transport {

// By SendPolicy::Turn::level.
class LevelClasses {
 public:
  static constexpr std::size_t kLevels = 16;
  // The turn that a floor gives to any flow: it keeps its class, or its packets would overtake each other.
  static constexpr std::size_t kFloorLevel = 1;
  static constexpr const char* kAllowed =
      "levels and their DSCP, as 0-7=48,8=32,9-15=8: every level from 0 to 15 once, in order, DSCP from 0 to 63";

  LevelClasses() = default;  // none
  // Nothing: not kAllowed. Empty text: none.
  static std::optional<LevelClasses> parse(std::string_view text);

  bool any() const { return dscp_[0] >= 0; }
  // The byte in the IP header. -1: leave it as it is.
  int traffic_class(std::size_t level) const {
    constexpr int kShift = 2;
    return !any() || level == kFloorLevel ? -1 : dscp_[level] << kShift;
  }

 private:
  std::array<int, kLevels> dscp_ = [] {
    std::array<int, kLevels> none;
    none.fill(-1);
    return none;
  }();
};

}  // namespace clustar::transport
