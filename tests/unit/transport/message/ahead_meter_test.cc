#include "transport/message/ahead_meter.h"

#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <vector>

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
  EXPECT_TRUE(meter.stuck(0, kLater));
  meter.forget(0);
  EXPECT_FALSE(meter.stuck(0, kLater));
  EXPECT_TRUE(meter.room(kLater));
  EXPECT_TRUE(meter.connections().empty());
}

TEST(AheadMeter, WhatIsHandedOnDoesNotMakeAConnectionMove) {
  AheadMeter meter(1000);
  meter.add(0, 2000, kZero);
  meter.add(0, 500, kLater);
  EXPECT_TRUE(meter.stuck(0, kLater));
  EXPECT_TRUE(meter.room(kLater));
  meter.set(0, 2540, kLater);
  EXPECT_TRUE(meter.room(kLater)) << "headers, which add() does not know of";
}

TEST(AheadMeter, AConnectionThatTricklesIsStuck) {
  AheadMeter meter(1000);
  meter.add(0, 2000, kZero);
  meter.set(0, 1999, kZero + AheadMeter::kPatience);
  meter.add(0, 1001, kLater);
  EXPECT_TRUE(meter.stuck(0, kLater));
  EXPECT_TRUE(meter.room(kLater));
  meter.set(0, 1001, kLater);
  EXPECT_FALSE(meter.stuck(0, kLater));
  EXPECT_FALSE(meter.room(kLater)) << "it moves, so it counts again";
}

// Eight connections with 64 KiB each on a slow line: each waits for longer than kPatience, and none is stuck.
TEST(AheadMeter, WhoWaitsForItsTurnOnASlowLineIsNotStuck) {
  constexpr std::uint64_t kEach = 64 * 1024;
  AheadMeter meter(50'000);
  TimePoint now = kZero;
  std::array<std::uint64_t, 8> left{};
  for (AheadMeter::ConnectionId id = 0; id < left.size(); ++id) meter.add(id, left[id] = kEach, now);
  for (AheadMeter::ConnectionId id = 0; id < left.size(); ++id) {
    for (; left[id] > 0; left[id] -= AheadMeter::kStep) {  // 33 Mbit/s
      now += microseconds(4000);
      meter.set(id, left[id] - AheadMeter::kStep, now);
      for (const AheadMeter::ConnectionId other : meter.connections()) EXPECT_FALSE(meter.stuck(other, now)) << other;
    }
  }
  EXPECT_TRUE(meter.connections().empty());
}

TEST(AheadMeter, WhoIsPassedByManyTimesWhatWasHereIsStuck) {
  AheadMeter meter(100'000);
  TimePoint now = kZero;
  meter.add(0, 16'000, now);
  std::uint64_t passed = 0;
  for (; !meter.stuck(0, now); passed += 1000) {
    now += microseconds(100);
    meter.add(1, 1000, now);
    meter.set(1, 0, now);
    ASSERT_LT(passed, 10'000'000u);
  }
  EXPECT_GE(passed, AheadMeter::kTurns * 100'000 - 1000);
  EXPECT_TRUE(meter.room(now));
}

TEST(AheadMeter, WhoIsForgottenDidNotLeave) {
  AheadMeter meter(1000);
  meter.add(0, 2000, kZero);
  meter.add(1, 2000, kZero);
  meter.forget(1);
  EXPECT_FALSE(meter.stuck(0, kZero + AheadMeter::kPatience));
  EXPECT_TRUE(meter.stuck(0, kLater)) << "nothing moved";
  meter.forget(7);
  EXPECT_EQ(meter.connections(), std::vector<AheadMeter::ConnectionId>{0});
}

TEST(AheadMeter, WhoHasMuchNeedNotSendAllOfItInTime) {
  AheadMeter meter(1 << 20);
  meter.add(0, 10 * AheadMeter::kStep, kZero);
  meter.set(0, 9 * AheadMeter::kStep, kZero + AheadMeter::kPatience);
  EXPECT_FALSE(meter.stuck(0, kLater));
}

TEST(AheadMeter, AConnectionThatAlwaysHasSomethingAndMovesIsNotStuck) {
  AheadMeter meter(1000);
  TimePoint now = kZero;
  meter.add(0, 2000, now);
  for (int i = 0; i < 100; ++i) {
    now += AheadMeter::kPatience / 4;
    meter.set(0, 1000, now);
    meter.add(0, 1000, now);
    EXPECT_FALSE(meter.stuck(0, now));
  }
}

}  // namespace
}  // namespace clustar::transport
