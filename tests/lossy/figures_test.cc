#include "bench/lossy/figures.h"

#include <gtest/gtest.h>

#include <numeric>

namespace clustar::bench::lossy {
namespace {

using Kind = BarSpec::Kind;

std::vector<double> from_1_to(int last) {
  std::vector<double> values(static_cast<std::size_t>(last));
  std::iota(values.rbegin(), values.rend(), 1.0);
  return values;
}

ArmSamples arm(std::string name, std::vector<std::vector<double>> blocks) {
  ArmSamples samples;
  samples.name = std::move(name);
  samples.block_ms = std::move(blocks);
  return samples;
}

TEST(LossyFigures, PercentilesAreByNearestRank) {
  const Times times = times_of(from_1_to(1000));
  EXPECT_EQ(times.p50, 500);
  EXPECT_EQ(times.p90, 900);
  EXPECT_EQ(times.p99, 990);
  EXPECT_EQ(times.p999, 999);
  EXPECT_EQ(times.min, 1);
  EXPECT_EQ(times.max, 1000);
  EXPECT_EQ(times.mean, 500.5);
  EXPECT_EQ(times_of({}).p99, 0);
  EXPECT_EQ(times_of({7}).p999, 7);
}

TEST(LossyFigures, TheDistributionRisesFromTheFastestToTheSlowest) {
  const auto curve = distribution(from_1_to(1000), 200);
  ASSERT_EQ(curve.size(), 200u);
  EXPECT_EQ(curve.front(), std::pair(1.0, 0.001));
  EXPECT_EQ(curve.back(), std::pair(1000.0, 1.0));
  for (std::size_t i = 1; i < curve.size(); ++i) {
    EXPECT_GT(curve[i].first, curve[i - 1].first);
    EXPECT_GT(curve[i].second, curve[i - 1].second);
  }
  EXPECT_EQ(distribution({3, 1, 2}, 200).size(), 3u);
  EXPECT_EQ(distribution({5}, 200).size(), 1u);
  EXPECT_TRUE(distribution({}, 200).empty());
}

TEST(LossyFigures, BlocksMakeUpTheRounds) {
  EXPECT_EQ(plan_blocks(1000, 10), std::vector<int>(10, 100));
  EXPECT_EQ(plan_blocks(3, 10), std::vector<int>(3, 1));
  for (const int rounds : {1, 7, 11, 99, 1001}) {
    const auto blocks = plan_blocks(rounds, 10);
    EXPECT_EQ(std::accumulate(blocks.begin(), blocks.end(), 0), rounds);
    for (const int block : blocks) EXPECT_GT(block, 0) << rounds;
  }
}

TEST(LossyFigures, ABarComparesTailsAndSaysItsSpread) {
  const std::vector<ArmSamples> arms{arm("a", {{10, 10}, {10, 20}}), arm("b", {{60, 10}, {10, 10}})};
  const Bar bar = judge({Kind::kP99Over, "a", "b", 3, true}, arms, 0);
  ASSERT_TRUE(bar.figure);
  EXPECT_EQ(*bar.figure, 3);
  EXPECT_TRUE(bar.met());
  EXPECT_EQ(bar.low, 0.5);
  EXPECT_EQ(bar.high, 6);
  EXPECT_FALSE(judge({Kind::kP99Over, "a", "b", 3.1, true}, arms, 0).met());
}

TEST(LossyFigures, ABarAgainstMedianAndIdeal) {
  const std::vector<ArmSamples> arms{arm("a", {{10, 10, 10, 12}})};
  const Bar tail = judge({Kind::kP99OverP50, "a", "", 1.2, false}, arms, 0);
  EXPECT_EQ(*tail.figure, 1.2);
  EXPECT_TRUE(tail.met());
  EXPECT_EQ(*judge({Kind::kP99OverIdeal, "a", "", 1.05, false}, arms, 10).figure, 1.2);
  EXPECT_FALSE(judge({Kind::kP99OverIdeal, "a", "", 1.05, false}, arms, 10).met());
}

TEST(LossyFigures, ABarWithoutItsArmIsNeitherMetNorAFigure) {
  const std::vector<ArmSamples> arms{arm("a", {{10}}), arm("empty", {{}})};
  for (const char* other : {"missing", "empty"}) {
    const Bar bar = judge({Kind::kP99Over, "a", other, 3, true}, arms, 0);
    EXPECT_FALSE(bar.figure) << other;
    EXPECT_FALSE(bar.met()) << other;
  }
}

TEST(LossyFigures, CpuIsComparedByMedians) {
  std::vector<ArmSamples> arms{arm("a", {{1}}), arm("b", {{1}})};
  arms[0].block_cpu = {{0.2, 0.4, 9}};
  arms[1].block_cpu = {{0.4, 0.5, 0.6}};
  EXPECT_DOUBLE_EQ(*judge({Kind::kCpuOver, "a", "b", 1.2, false}, arms, 0).figure, 0.8);
}

TEST(LossyFigures, TheSmallerShareCounts) {
  std::vector<ArmSamples> arms{arm("a+b", {{1}, {1}})};
  arms[0].block_shares = {{{"a", 0.1, 0.4}, {"b", 0.1, 1.6}}, {{"a", 0.1, 0.8}, {"b", 0.1, 1.2}}};
  const Bar bar = judge({Kind::kShare, "a+b", "", 0.5, true}, arms, 0);
  ASSERT_TRUE(bar.figure);
  EXPECT_NEAR(*bar.figure, 0.6, 1e-9);
  EXPECT_NEAR(bar.low, 0.4, 1e-9);
  EXPECT_TRUE(bar.met());
}

}  // namespace
}  // namespace clustar::bench::lossy
