#include "transport/message/ahead_meter.h"

#include <gtest/gtest.h>

#include <limits>

namespace clustar::transport {
namespace {

using std::chrono::microseconds;

constexpr TimePoint kZero = TimePoint(microseconds(1));
constexpr TimePoint kLater = kZero + AheadMeter::kPatience + microseconds(1);

TEST(AheadMeter, WithoutABoundThereIsAlwaysRoom) {
  AheadMeter meter(std::numeric_limits<std::uint64_t>::max());
  EXPECT_FALSE(meter.bounded());
  meter.add(0, 1 << 30, kZero);
  EXPECT_TRUE(meter.room(kZero));
}

TEST(AheadMeter, TheSumOverAllConnectionsCounts) {
  AheadMeter meter(1000);
  meter.add(0, 400, kZero);
  meter.add(7, 500, kZero);
  EXPECT_TRUE(meter.room(kZero));
  meter.add(0, 100, kZero);
  EXPECT_FALSE(meter.room(kZero));
  meter.set(7, 300, kZero);
  EXPECT_TRUE(meter.room(kZero));
  EXPECT_EQ(meter.connections().size(), 2u);
  meter.set(0, 0, kZero);
  EXPECT_EQ(meter.connections(), std::vector<AheadMeter::ConnectionId>{7});
}

TEST(AheadMeter, AConnectionThatDoesNotMoveHoldsUpNobodyElse) {
  AheadMeter meter(1000);
  meter.add(0, 2000, kZero);
  EXPECT_FALSE(meter.room(kZero + AheadMeter::kPatience));
  meter.set(0, 2000, kLater);
  EXPECT_TRUE(meter.room(kLater)) << "its peer's window is shut";
  meter.set(0, 1999, kLater);
  EXPECT_FALSE(meter.room(kLater)) << "it moves again";
  meter.forget(0);
  EXPECT_TRUE(meter.room(kLater));
  EXPECT_TRUE(meter.connections().empty());
}

}  // namespace
}  // namespace clustar::transport
