#include "bench/lossy/figures.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>

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
  const Bar bar = judge({Kind::kP99Over, "a", "b", 3, true}, arms, {});
  ASSERT_TRUE(bar.figure);
  EXPECT_EQ(*bar.figure, 3);
  EXPECT_TRUE(bar.met());
  EXPECT_EQ(bar.low, 0.5);
  EXPECT_EQ(bar.high, 6);
  EXPECT_FALSE(judge({Kind::kP99Over, "a", "b", 3.1, true}, arms, {}).met());
}

TEST(LossyFigures, ABarAgainstMedianAndIdeal) {
  const std::vector<ArmSamples> arms{arm("a", {{10, 10, 10, 12}})};
  const Bar tail = judge({Kind::kP99OverP50, "a", "", 1.2, false}, arms, {});
  EXPECT_EQ(*tail.figure, 1.2);
  EXPECT_TRUE(tail.met());
  EXPECT_EQ(*judge({Kind::kP99OverIdeal, "a", "", 1.05, false}, arms, {.ideal_ms = 10}).figure, 1.2);
  EXPECT_FALSE(judge({Kind::kP99OverIdeal, "a", "", 1.05, false}, arms, {.ideal_ms = 10}).met());
}

TEST(LossyFigures, ABarWithoutItsArmIsNeitherMetNorAFigure) {
  const std::vector<ArmSamples> arms{arm("a", {{10}}), arm("empty", {{}})};
  for (const char* other : {"missing", "empty"}) {
    const Bar bar = judge({Kind::kP99Over, "a", other, 3, true}, arms, {});
    EXPECT_FALSE(bar.figure) << other;
    EXPECT_FALSE(bar.met()) << other;
  }
}

TEST(LossyFigures, CpuIsComparedByMediansAndByTheMachinesWhereNobodyElseUsedIt) {
  std::vector<ArmSamples> arms{arm("a", {{1}}), arm("b", {{1}})};
  arms[0].block_cpu = {{0.2, 0.4, 9}};
  arms[1].block_cpu = {{0.4, 0.5, 0.6}};
  arms[0].block_machine_cpu = {{0.3}, {0.6}, {0.9}};
  arms[1].block_machine_cpu = {{0.4}, {0.4}, {0.4}};
  const BarSpec spec{Kind::kCpuOver, "a", "b", 1.2, false};
  const Bar disturbed = judge(spec, arms, {.machine_is_ours = false});
  EXPECT_DOUBLE_EQ(*disturbed.figure, 0.8);
  EXPECT_NE(disturbed.text.find("of the processes, as others used the machine's"), std::string::npos);
  const Bar alone = judge(spec, arms, {.machine_is_ours = true});
  EXPECT_DOUBLE_EQ(*alone.figure, 1.5);
  EXPECT_FALSE(alone.met());
  EXPECT_NE(alone.text.find("of the whole machine"), std::string::npos) << alone.text;
  arms[1].block_machine_cpu.clear();
  EXPECT_DOUBLE_EQ(*judge(spec, arms, {.machine_is_ours = true}).figure, 0.8) << "not known of one";
}

// A mean over blocks would give 0.8, and only the last of several rounds of a block 0.9.
TEST(LossyFigures, TheSmallestShareOfAnyJobInAnyRoundCounts) {
  std::vector<ArmSamples> arms{arm("a+b", {{1, 1}, {1}})};
  arms[0].block_shares = {{{{"a", 0.1, 0.4}, {"b", 0.1, 1.6}}, {{"a", 0.1, 1.1}, {"b", 0.1, 0.9}}},
                          {{{"a", 0.1, 1.2}, {"b", 0.1, 0.8}}}};
  const Bar bar = judge({Kind::kShare, "a+b", "", 0.5, true}, arms, {});
  ASSERT_TRUE(bar.figure);
  EXPECT_NEAR(*bar.figure, 0.4, 1e-9);
  EXPECT_NEAR(bar.low, 0.4, 1e-9);
  EXPECT_NEAR(bar.high, 0.8, 1e-9) << "by block";
  EXPECT_FALSE(bar.met());
  EXPECT_FALSE(bar.indicative) << "no percentile";
  arms[0].block_shares.clear();
  EXPECT_FALSE(judge({Kind::kShare, "a+b", "", 0.5, true}, arms, {}).figure) << "not 0";
}

TEST(LossyFigures, PercentilesOfFewerThanAThousandRoundsAreIndicative) {
  const BarSpec spec{Kind::kP99OverP50, "a", "", 2, false};
  EXPECT_TRUE(judge(spec, {arm("a", {from_1_to(999)})}, {}).indicative);
  EXPECT_FALSE(judge(spec, {arm("a", {from_1_to(500), from_1_to(500)})}, {}).indicative);
}

TEST(LossyFigures, WhatTheSwitchDidNotDoAloneVoidsABar) {
  std::vector<ArmSamples> arms{arm("a", {{10}}), arm("b", {{30}}), arm("c", {{30}})};
  const BarSpec spec{Kind::kP99Over, "a", "b", 2, true};
  arms[2].super_packets = 5;
  EXPECT_TRUE(judge(spec, arms, {}).met()) << "c is not in it";
  arms[1].super_packets = 7;
  const Bar bar = judge(spec, arms, {});
  EXPECT_FALSE(bar.met());
  EXPECT_TRUE(bar.figure) << "still said";
  EXPECT_NE(bar.void_because.find("7 packets of b"), std::string::npos) << bar.void_because;
  arms[1].super_packets = 0;
  const Bar dropped = judge(spec, arms, {.backstop_drops = 3});
  EXPECT_FALSE(dropped.met());
  EXPECT_NE(dropped.void_because.find("3 packets were dropped behind"), std::string::npos) << dropped.void_because;
}

TEST(LossyFigures, TheIdealIsAlsoTakenLessTheBucket) {
  const Bar bar =
      judge({Kind::kP99OverIdeal, "a", "", 1.05, false}, {arm("a", {{9}})}, {.ideal_ms = 10, .bucket_ms = 1});
  EXPECT_DOUBLE_EQ(*bar.figure, 0.9) << "the bar goes by the ideal as it is defined";
  EXPECT_DOUBLE_EQ(bar.figure_less_bucket.value_or(0), 1.0);
}

TEST(LossyFigures, EachArmIsAtEachPlaceOnceInAsManyBlocks) {
  constexpr std::size_t kArms = 5;
  for (const std::uint64_t seed : {1, 2, 3}) {
    std::vector<std::set<std::size_t>> places(kArms);
    for (std::size_t block = 0; block < kArms; ++block) {
      const auto order = turn_order(kArms, block, seed);
      ASSERT_EQ(order.size(), kArms);
      EXPECT_EQ(order, turn_order(kArms, block, seed));
      for (std::size_t place = 0; place < kArms; ++place) places[order[place]].insert(place);
    }
    for (const auto& seen : places) EXPECT_EQ(seen.size(), kArms);
  }
  EXPECT_NE(turn_order(8, 0, 1), turn_order(8, 0, 2)) << "seeded";
  EXPECT_TRUE(turn_order(0, 3, 1).empty());
  EXPECT_EQ(turn_order(1, 3, 1), std::vector<std::size_t>{0});
}

}  // namespace
}  // namespace clustar::bench::lossy
