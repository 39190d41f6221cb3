// What others do about losses, to compare MLT with on the same packets.
#pragma once

#include "mlt/core/recovery.h"

namespace clustar::mlt::compare {

// What an RC NIC does: in order on one path, and everything behind a loss is sent again.
class GoBackN final : public Recovery {
 public:
  std::uint8_t number() const override { return 1; }
  bool in_order() const override { return true; }
  bool goes_back() const override { return true; }
  bool loses_by_time() const override { return false; }
  bool takes(std::uint32_t index, std::uint32_t received) const override { return index == received; }
};

// A message ends at a fixed time after its first packet, whatever is missing: the rule of UBT. Breaks the loss
// contract.
class StaticDeadline final : public Recovery {
 public:
  // `after` > 0.
  explicit StaticDeadline(Duration after) : after_(after) {}
  std::uint8_t number() const override { return 2; }
  bool gives_up() const override { return true; }
  TimePoint ends_at(TimePoint first_at) const override { return first_at + after_; }

 private:
  const Duration after_;
};

}  // namespace clustar::mlt::compare
