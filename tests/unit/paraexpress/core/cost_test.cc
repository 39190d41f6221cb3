#include "paraexpress/core/cost.h"

#include <gtest/gtest.h>

#include "paraexpress/core/plans/build.h"

namespace clustar::paraexpress {
namespace {

// 4 racks of 8 at 4:1, 40 Gbit/s, 20 us: what is known about each plan there by arithmetic on paper.
const Network kPaper{5e9, 20e-6, 0, 0, 16 << 10, 4 << 20, {}};
constexpr std::uint64_t kVgg16 = 553'000'000, kMiB = 1 << 20;

double unchunked_ms(Plan plan, std::uint64_t bytes, std::uint32_t helpers = 0) {
  RegionMap map = equal_regions(32, 8, 4);
  // A server of its own, behind an uplink of its own.
  for (std::uint32_t i = 0; i < helpers; ++i) {
    map.region_of.push_back(static_cast<std::uint32_t>(map.regions.size()));
    map.regions.push_back({"helper", 1, 1});
  }
  const Group group = make_group(32, helpers, map);
  return cost(shape_of(build(plan, group), group, kPaper), kPaper, bytes, 1).seconds * 1e3;
}

TEST(Cost, agrees_with_what_paper_says_of_vgg16) {
  EXPECT_NEAR(unchunked_ms(Plan::kServer, kVgg16, 1), 7078.4 + 0.04, 1);
  EXPECT_NEAR(unchunked_ms(Plan::kDirect, kVgg16), 663.6 + 0.04, 1);
  EXPECT_NEAR(unchunked_ms(Plan::kHierarchical, kVgg16), 276.5 + 0.08, 1);
  EXPECT_NEAR(unchunked_ms(Plan::kRing, kVgg16), 214.3 + 1.24, 1);
}

TEST(Cost, agrees_with_what_paper_says_of_small_buffers) {
  EXPECT_NEAR(unchunked_ms(Plan::kRing, kMiB), 1.65, 0.01);
  EXPECT_NEAR(unchunked_ms(Plan::kDirect, kMiB), 1.30, 0.01);
  EXPECT_NEAR(unchunked_ms(Plan::kHierarchical, kMiB), 0.60, 0.01);
  EXPECT_NEAR(unchunked_ms(Plan::kRing, 64 << 10), 1.27, 0.01);
  EXPECT_NEAR(unchunked_ms(Plan::kDirect, 64 << 10), 0.12, 0.01);
}

Shape shape_of_plan(Plan plan, std::uint32_t ranks, const Network& network) {
  const Group group = make_group(ranks, 0, one_region(ranks));
  return shape_of(build(plan, group), group, network);
}

TEST(Cost, a_single_rank_pays_nothing) {
  for (const Plan plan : kPlans) {
    if (plan == Plan::kSharded || plan == Plan::kHierarchical) continue;
    EXPECT_EQ(least_cost(shape_of_plan(plan, 1, kPaper), kPaper, kMiB).seconds, 0) << to_string(plan);
  }
}

TEST(Cost, chunks_let_a_tree_reach_the_bandwidth_and_a_server_use_both_directions) {
  // Of each byte a rank sends one up, one up and two down (inside), each half: two in all.
  const double alone = 2.0 * (256 << 20) / 5e9;
  const Shape tree = shape_of_plan(Plan::kDoubleTree, 64, kPaper);
  EXPECT_NEAR(tree.nic_share, 2, 1e-9);
  EXPECT_GT(cost(tree, kPaper, 256 << 20, 1).seconds, 4 * alone);
  EXPECT_LT(least_cost(tree, kPaper, 256 << 20).seconds, 1.1 * alone);
  const Shape server = shape_of_plan(Plan::kServer, 9, kPaper);
  EXPECT_NEAR(cost(server, kPaper, kMiB * 256, 1).seconds / least_cost(server, kPaper, kMiB * 256).seconds, 2, 0.1);
}

TEST(Cost, messages_count_where_they_cost) {
  Network network = kPaper;
  network.message_s = 1e-6;
  // 63 sent and 63 received by each, one after the other: more than the latency hides. 2 steps.
  EXPECT_NEAR(cost(shape_of_plan(Plan::kDirect, 64, network), network, 1, 1).seconds, 2 * 126e-6, 1e-7);
  // 9 of each: the last comes a latency after it was sent.
  EXPECT_NEAR(cost(shape_of_plan(Plan::kDirect, 10, network), network, 1, 1).seconds, 2 * (20e-6 + 10e-6), 1e-7);
  // The root takes 63 that come at once, then sends 63; a leaf takes the last.
  EXPECT_NEAR(cost(shape_of_plan(Plan::kServer, 64, network), network, 1, 1).seconds, 2 * (20e-6 + 64e-6), 2e-7);
}

TEST(Cost, a_late_rank_holds_up_a_ring_more_than_a_server_that_is_late_itself) {
  Network network = kPaper;
  network.lag_s.assign(8, 0);
  network.lag_s[0] = 1e-3;
  const auto added = [&](Plan plan) {
    const double late = cost(shape_of_plan(plan, 8, network), network, kMiB, 1).seconds;
    return late - cost(shape_of_plan(plan, 8, kPaper), kPaper, kMiB, 1).seconds;
  };
  EXPECT_NEAR(added(Plan::kRing), 1e-3, 1e-9) << "a leaf of one shard";
  EXPECT_NEAR(added(Plan::kDirect), 1e-3, 1e-9);
  // It is the root, which adds itself after all others have come: 20 us and 7 MiB.
  EXPECT_NEAR(added(Plan::kServer), 1e-3 > 20e-6 + 7.0 * kMiB / 5e9 ? 1e-3 - 20e-6 - 7.0 * kMiB / 5e9 : 0, 1e-9);
}

TEST(Cost, the_busiest_uplink_of_a_hierarchy_carries_each_region_once) {
  const Group group = make_group(32, 0, equal_regions(32, 8, 4));
  EXPECT_NEAR(shape_of(build(Plan::kHierarchical, group), group, kPaper).uplink_share, 1.5, 1e-9);  // 2 (R-1)/R
  EXPECT_NEAR(shape_of(build(Plan::kDirect, group), group, kPaper).uplink_share, 12, 1e-9);         // 2 n (R-1)/R
  EXPECT_NEAR(shape_of(build(Plan::kRing, group), group, kPaper).uplink_share, 2 * 31.0 / 32, 1e-9);
}

TEST(Network, says_what_is_wrong) {
  const Group group = make_group(2, 0, one_region(2));
  EXPECT_EQ(inconsistency(kPaper, group), "");
  Network network = kPaper;
  network.lag_s = {1};
  EXPECT_EQ(inconsistency(network, group), "1 lags; allowed: none, or one for each of 2 ranks");
  network = kPaper;
  network.nic_bytes_per_s = 0;
  EXPECT_NE(inconsistency(network, group), "");
  network = kPaper;
  network.least_chunk_bytes = 0;
  EXPECT_NE(inconsistency(network, group), "");
}

}  // namespace
}  // namespace clustar::paraexpress
