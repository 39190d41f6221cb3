#include "paraexpress/core/planner.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "paraexpress/core/placement.h"

namespace clustar::paraexpress {
namespace {

const Network kRacks{5e9, 20e-6, 0, 0, 16 << 10, 4 << 20, {}};

TEST(Planner, takes_the_least_modelled_time) {
  const Group group = make_group(32, 2, equal_regions(34, 8, 4));
  const Planner planner(group, kRacks);
  for (std::uint64_t bytes = 4 << 10; bytes <= 256 << 20; bytes *= 4) {
    const auto all = planner.candidates(bytes);
    ASSERT_EQ(all.size(), kPlans.size());
    for (const Candidate& one : all) EXPECT_GE(one.cost.seconds, planner.best(bytes).cost.seconds);
  }
}

TEST(Planner, small_goes_by_stars_and_much_through_narrow_uplinks_by_a_ring_or_a_hierarchy) {
  const Group group = make_group(32, 0, equal_regions(32, 8, 4));
  const Planner planner(group, kRacks);
  const Plan small = planner.best(4 << 10).plan;
  EXPECT_TRUE(small == Plan::kDirect || small == Plan::kServer) << to_string(small);
  const Plan large = planner.best(256 << 20).plan;
  EXPECT_TRUE(large == Plan::kRing || large == Plan::kHierarchical) << to_string(large);
}

TEST(Planner, does_not_take_a_ring_through_the_uplinks_at_random) {
  Group group = make_group(32, 0, equal_regions(32, 8, 8));
  for (Member i = 0; i < 32; ++i) group.order[i] = (i % 4) * 8 + i / 4;  // no two neighbours in one region
  ASSERT_EQ(inconsistency(group), "");
  EXPECT_EQ(Planner(group, kRacks).best(256 << 20).plan, Plan::kHierarchical);
}

Candidate candidate(Plan plan, double seconds) { return {plan, {seconds, 1}}; }

TEST(Choice, stays_until_another_is_better_by_the_margin) {
  Choice choice({}, 0.2);
  EXPECT_EQ(choice.choose({candidate(Plan::kDirect, 1), candidate(Plan::kRing, 1.01)}).plan, Plan::kDirect);
  EXPECT_EQ(choice.choose({candidate(Plan::kDirect, 1), candidate(Plan::kRing, 0.81)}).plan, Plan::kDirect);
  EXPECT_EQ(choice.choose({candidate(Plan::kDirect, 1), candidate(Plan::kRing, 0.79)}).plan, Plan::kRing);
  EXPECT_EQ(choice.choose({candidate(Plan::kDirect, 1), candidate(Plan::kRing, 1.2)}).plan, Plan::kRing);
  EXPECT_EQ(choice.choose({candidate(Plan::kDirect, 1)}).plan, Plan::kDirect) << "the one in use is gone";
  EXPECT_EQ(choice.plan(), Plan::kDirect);
}

TEST(Placement, packs_into_one_region_where_all_fit) {
  RegionMap map = equal_regions(8, 2, 64);
  for (Region& region : map.regions) region.hosts = 8;
  const Group group = make_group(8, 0, map);
  const Group dense = packed(group);
  EXPECT_EQ(std::count(dense.regions.region_of.begin(), dense.regions.region_of.end(), 0u), 8);
  EXPECT_EQ(PlacementAdvisor(group, kRacks).hint(64 << 20).placement, Placement::kPack);
}

TEST(Placement, spreads_where_no_region_has_room_for_all_and_each_brings_an_uplink) {
  // 6 ranks: 3 and 3 behind 1 NIC's worth each, or 1 each behind as much.
  RegionMap map = equal_regions(6, 1, 4);
  for (Region& region : map.regions) region.hosts = 4, region.oversubscription = 4;
  const Group group = make_group(6, 0, map);
  const PlacementHint hint = PlacementAdvisor(group, kRacks).hint(64 << 10);
  EXPECT_EQ(packed(group).regions.region_of, (std::vector<std::uint32_t>{0, 0, 0, 0, 1, 1}));
  EXPECT_EQ(spread(group).regions.region_of, (std::vector<std::uint32_t>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(hint.placement, Placement::kSpread);
  EXPECT_LT(hint.spread_s, hint.packed_s);
}

TEST(Placement, is_all_one_in_full_regions) {
  const Group group = make_group(16, 0, equal_regions(16, 8, 4));
  EXPECT_EQ(PlacementAdvisor(group, kRacks).hint(1 << 20).placement, Placement::kEither);
}

TEST(Placement, keeps_helpers_where_they_are) {
  RegionMap map = equal_regions(5, 3, 2);
  const Group group = make_group(4, 1, map);
  for (const Group& moved : {packed(group), spread(group)}) {
    EXPECT_EQ(inconsistency(moved), "");
    EXPECT_EQ(moved.region_of(4), 1u);
  }
}

}  // namespace
}  // namespace clustar::paraexpress
