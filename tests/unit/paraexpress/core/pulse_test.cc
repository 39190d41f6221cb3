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
  EXPECT_FALSE(pulse.dead(then + Pulse::kAnswer - milliseconds(1)));
  EXPECT_TRUE(pulse.dead(then + Pulse::kAnswer));
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
    now += Pulse::kAnswer / 2;
    EXPECT_FALSE(pulse.dead(now));
    pulse.heard(now);
  }
  EXPECT_TRUE(pulse.dead(now + Pulse::kAnswer));
}

}  // namespace
}  // namespace clustar::paraexpress
