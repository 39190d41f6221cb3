#include "libfabric_shim/provider/core/silence.h"

#include <gtest/gtest.h>

namespace clustar::libfabric_shim::provider {
namespace {

using std::chrono::seconds;

constexpr TimePoint kStart{seconds(1000)};

TEST(FiSilence, IsOverOnlyAfterTheLimitWithoutAnyMove) {
  Silence silence(seconds(4));
  EXPECT_FALSE(silence.over(true, kStart));
  for (int second = 1; second <= 4; ++second) EXPECT_FALSE(silence.over(false, kStart + seconds(second)));
  EXPECT_TRUE(silence.over(false, kStart + seconds(5)));
}

TEST(FiSilence, AMoveStartsItAgain) {
  Silence silence(seconds(4));
  for (int second = 0; second < 100; ++second) {
    EXPECT_FALSE(silence.over(second % 4 == 0, kStart + seconds(second))) << second;
  }
}

TEST(FiSilence, APauseOfTheProgramIsNotThePeers) {
  Silence silence(seconds(4));
  EXPECT_FALSE(silence.over(true, kStart));
  EXPECT_FALSE(silence.over(false, kStart + seconds(60)));
  for (int second = 61; second <= 64; ++second) EXPECT_FALSE(silence.over(false, kStart + seconds(second)));
  EXPECT_TRUE(silence.over(false, kStart + seconds(65)));
}

TEST(FiSilence, WithoutALimitItIsNeverOver) {
  Silence silence(Duration::zero());
  EXPECT_FALSE(silence.over(true, kStart));
  for (int second = 1; second < 100'000; second += 7) EXPECT_FALSE(silence.over(false, kStart + seconds(second)));
}

}  // namespace
}  // namespace clustar::libfabric_shim::provider
