#include "mlt/core/send/parity_policy.h"

#include <gtest/gtest.h>

#include "transport/base/rng.h"

namespace clustar::mlt {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr Duration kFar = milliseconds(40);

class ParityPolicyTest : public testing::Test {
 protected:
  ParityPolicyTest() { options.parity = true; }
  void settle(std::uint32_t packets, double loss) {
    for (std::uint32_t i = 0; i < packets; ++i) policy.settled(rng.chance(loss));
  }

  Options options;
  ParityPolicy policy{options};
  Rng rng{1};
};

TEST_F(ParityPolicyTest, WhereNothingIsLostThereIsNone) {
  EXPECT_EQ(policy.rows(64, kFar), 0u) << "nothing is known";
  settle(1'000'000, 0);
  EXPECT_EQ(policy.rows(64, kFar), 0u);
}

TEST_F(ParityPolicyTest, TheMoreIsLostTheMoreRows) {
  std::uint32_t before = 0;
  for (const double loss : {1e-3, 1e-2, 5e-2}) {
    settle(100'000, loss);
    EXPECT_NEAR(policy.loss(), loss, loss / 2);
    const std::uint32_t rows = policy.rows(64, kFar);
    EXPECT_GT(rows, before) << loss;
    before = rows;
  }
  EXPECT_LE(before, 9u) << "15 % of a block";
}

TEST_F(ParityPolicyTest, MostBlocksAreWhole) {
  for (const double loss : {1e-4, 1e-3, 1e-2}) {
    settle(100'000, loss);
    const std::uint32_t rows = policy.rows(64, kFar);
    int broken = 0;
    for (int block = 0; block < 100'000; ++block) {
      std::uint32_t lost = 0;
      for (std::uint32_t i = 0; i < 64 + rows; ++i) lost += rng.chance(loss) ? 1 : 0;
      broken += lost > rows ? 1 : 0;
    }
    EXPECT_LT(broken, 300) << loss;
  }
}

TEST_F(ParityPolicyTest, NearbyOrWithoutACodeThereIsNone) {
  settle(10'000, 1e-2);
  EXPECT_GT(policy.rows(64, options.parity_from), 0u);
  EXPECT_EQ(policy.rows(64, options.parity_from - microseconds(1)), 0u);
  options.parity = false;
  EXPECT_EQ(policy.rows(64, kFar), 0u);
}

TEST_F(ParityPolicyTest, AShortBlockHasOneRowAtLeast) {
  settle(100'000, 1e-2);
  EXPECT_EQ(policy.rows(2, kFar), 1u);
  EXPECT_EQ(policy.rows(1, kFar), 1u);
}

TEST_F(ParityPolicyTest, BurstsThatItCouldNotMendCallForNone) {
  for (int burst = 0; burst < 100; ++burst) {
    settle(2000, 0);
    settle(64, 0.75);
  }
  EXPECT_EQ(policy.rows(64, kFar), 0u);
}

TEST_F(ParityPolicyTest, AnOverloadedLineGetsNone) {
  settle(100'000, 0.3);
  EXPECT_EQ(policy.rows(64, kFar), 0u);
}

TEST_F(ParityPolicyTest, ItForgets) {
  settle(100'000, 1e-2);
  EXPECT_GT(policy.rows(64, kFar), 0u);
  settle(1'000'000, 0);
  EXPECT_EQ(policy.rows(64, kFar), 0u);
}

TEST_F(ParityPolicyTest, WhatMayStayMissingNeedsNone) {
  EXPECT_FALSE(policy.exceeds(1000, 0)) << "nothing is lost";
  settle(100'000, 1e-2);
  EXPECT_TRUE(policy.exceeds(1000, 0));
  EXPECT_TRUE(policy.exceeds(1000, 10)) << "half of the messages lose more";
  EXPECT_FALSE(policy.exceeds(1000, 30));
}

}  // namespace
}  // namespace clustar::mlt
