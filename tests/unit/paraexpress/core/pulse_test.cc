#include "paraexpress/core/pulse.h"

#include <gtest/gtest.h>

namespace clustar::paraexpress {
namespace {

using std::chrono::milliseconds;
constexpr TimePoint kStart{std::chrono::hours(5)};

TEST(Pulse, ASilentOneIsAskedOnceAndDeadWithoutAnAnswer) {
  Pulse pulse;
  pulse.heard(kStart);
  EXPECT_FALSE(pulse.should_ask(kStart + Pulse::kQuiet - milliseconds(1)));
  const TimePoint then = kStart + Pulse::kQuiet;
  ASSERT_TRUE(pulse.should_ask(then));
  pulse.asked(then);
  EXPECT_FALSE(pulse.should_ask(then + milliseconds(500)));
  for (TimePoint now = then; now < then + Pulse::kAnswer; now += milliseconds(10)) ASSERT_FALSE(pulse.dead(now));
  EXPECT_TRUE(pulse.dead(then + Pulse::kAnswer));
}

// The answer may have come meanwhile.
TEST(Pulse, WhoStoodStillItselfGivesItTime) {
  Pulse pulse;
  pulse.heard(kStart);
  const TimePoint then = kStart + Pulse::kQuiet;
  pulse.asked(then);
  EXPECT_FALSE(pulse.dead(then + milliseconds(10)));
  const TimePoint awake = then + std::chrono::seconds(30);
  for (TimePoint now = awake; now < awake + Pulse::kAnswer; now += milliseconds(10)) ASSERT_FALSE(pulse.dead(now));
  EXPECT_TRUE(pulse.dead(awake + Pulse::kAnswer));
}

TEST(Pulse, AnAnswerEndsTheQuestion) {
  Pulse pulse;
  pulse.heard(kStart);
  TimePoint now = kStart + Pulse::kQuiet;
  pulse.asked(now);
  now += Pulse::kAnswer / 2;
  pulse.answered(now);
  EXPECT_FALSE(pulse.dead(now + std::chrono::hours(1)));
  EXPECT_TRUE(pulse.should_ask(now + Pulse::kQuiet)) << "the next silence";
}

// The answer may stand behind data in the same channel.
TEST(Pulse, WhoSendsDataIsNotDead) {
  Pulse pulse;
  pulse.heard(kStart);
  TimePoint now = kStart + Pulse::kQuiet;
  pulse.asked(now);
  for (int i = 0; i < 20; ++i) {
    now += Pulse::kBlind / 2;
    EXPECT_FALSE(pulse.dead(now));
    pulse.heard(now);
  }
  const TimePoint last = now;
  while (now < last + Pulse::kAnswer) {
    EXPECT_FALSE(pulse.dead(now));
    now += milliseconds(10);
  }
  EXPECT_TRUE(pulse.dead(now));
}

}  // namespace
}  // namespace clustar::paraexpress
