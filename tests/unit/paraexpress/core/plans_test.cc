// Every plan, for every size: each contribution arrives once, each rank gets the result, and what a plan promises
// beyond.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "paraexpress/core/plans/build.h"
#include "paraexpress/core/plans/builders.h"
#include "transport/base/rng.h"

namespace clustar::paraexpress {
namespace {

Group some_group(std::uint32_t ranks, std::uint32_t helpers, std::uint32_t region_size, std::uint64_t seed = 0) {
  Group group = make_group(ranks, helpers, equal_regions(ranks + helpers, region_size, 4));
  Rng rng(seed);
  for (std::size_t i = group.order.size(); seed != 0 && i > 1; --i)
    std::swap(group.order[i - 1], group.order[rng.below(i)]);
  return group;
}

// What arrives at each member's result when sums flow up and the result down: how often each rank's contribution is in
// it.
std::vector<std::vector<int>> results(const Forest& forest, std::size_t shard) {
  const std::size_t members = forest.members();
  std::vector<std::vector<int>> sums(members, std::vector<int>(forest.ranks, 0));
  std::vector<std::uint32_t> heights;
  const auto order = leaves_first(forest.shards[shard], heights);
  for (const Member member : order) {
    for (const Member addend : role_of(forest, shard, member).addends) {
      if (addend == member) {
        ++sums[member][member];
      } else {
        for (Member rank = 0; rank < forest.ranks; ++rank) sums[member][rank] += sums[addend][rank];
      }
    }
  }
  std::vector<std::vector<int>> got(members);
  got[forest.shards[shard].root] = sums[forest.shards[shard].root];
  std::vector<Member> have{forest.shards[shard].root};
  for (std::size_t i = 0; i < have.size(); ++i) {
    for (const Member taker : role_of(forest, shard, have[i]).takers) {
      EXPECT_EQ(role_of(forest, shard, taker).giver, have[i]);
      got[taker] = got[have[i]];
      have.push_back(taker);
    }
  }
  return got;
}

TEST(Plans, every_contribution_arrives_once_and_every_rank_gets_the_sum) {
  for (std::uint32_t n = 1; n <= 64; ++n) {
    for (const std::uint32_t helpers : {0u, 3u}) {
      const Group group = some_group(n, helpers, 5, n % 3);
      ASSERT_EQ(inconsistency(group), "");
      for (const Plan plan : kPlans) {
        const Forest forest = build(plan, group);
        ASSERT_EQ(inconsistency(forest), "") << to_string(plan) << " n=" << n;
        // All shards of small forests; of others some.
        const std::size_t step = n <= 17 ? 1 : std::max<std::size_t>(1, forest.shards.size() / 5);
        for (std::size_t shard = 0; shard < forest.shards.size(); shard += step) {
          const auto got = results(forest, shard);
          for (Member rank = 0; rank < n; ++rank) {
            ASSERT_EQ(got[rank], std::vector<int>(n, 1)) << to_string(plan) << " n=" << n << " shard " << shard;
          }
        }
      }
    }
  }
}

TEST(Plans, are_consistent_at_a_thousand_ranks) {
  const Group group = some_group(1000, 7, 48, 5);
  for (const Plan plan : kPlans) EXPECT_EQ(inconsistency(build(plan, group)), "") << to_string(plan);
}

TEST(Plans, shard_s_is_rooted_at_rank_s_where_every_rank_is_a_root) {
  for (const std::uint32_t n : {1u, 2u, 7u, 24u}) {
    const Group group = some_group(n, 0, 5, 3);
    for (const Plan plan : {Plan::kDirect, Plan::kRing, Plan::kHierarchical}) {
      const Forest forest = build(plan, group);
      ASSERT_EQ(forest.shards.size(), n);
      for (Member rank = 0; rank < n; ++rank) EXPECT_EQ(forest.shards[rank].root, rank) << to_string(plan);
    }
  }
}

std::set<Member> inside(const Forest& forest, std::size_t shard) {
  std::set<Member> members;
  for (Member member = 0; member < forest.members(); ++member) {
    if (!role_of(forest, shard, member).children.empty()) members.insert(member);
  }
  return members;
}

TEST(DoubleTree, no_rank_is_inside_of_both_trees_and_both_are_shallow_and_binary) {
  for (std::uint32_t n = 1; n <= 300; ++n) {
    const Forest forest = build(Plan::kDoubleTree, some_group(n, 0, 8, n));
    ASSERT_EQ(forest.shards.size(), 2u);
    const auto first = inside(forest, 0), second = inside(forest, 1);
    for (const Member member : first) ASSERT_EQ(second.count(member), 0u) << "n=" << n << " member " << member;
    std::uint32_t most = 0;
    while ((1u << most) <= n) ++most;
    for (std::size_t shard = 0; shard < 2; ++shard) {
      std::vector<std::uint32_t> heights;
      leaves_first(forest.shards[shard], heights);
      EXPECT_LT(heights[forest.shards[shard].root], most) << "n=" << n;
      for (Member member = 0; member < n; ++member) ASSERT_LE(role_of(forest, shard, member).children.size(), 2u);
    }
  }
}

TEST(Sharded, has_the_shares_of_byteps) {
  for (const std::uint32_t n : {2u, 3u, 8u, 33u}) {
    for (const std::uint32_t k : {1u, 2u, 7u, 8u, 40u}) {
      const Forest forest = build(Plan::kSharded, some_group(n, k, 100));
      double sum = 0;
      for (const Shard& shard : forest.shards) sum += static_cast<double>(shard.weight);
      const double dn = n, dk = k, parts = dn * dn + dk * dn - 2 * dk;
      std::map<Member, double> share;
      for (const Shard& shard : forest.shards) share[shard.root] += static_cast<double>(shard.weight) / sum;
      for (Member member = 0; member < n + k; ++member) {
        double expected = member < n ? (dn - dk) / parts : 2 * (dn - 1) / parts;
        if (k >= n) expected = member < n ? 0 : 1 / dk;
        EXPECT_NEAR(share[member], expected, 1e-12) << n << " ranks, " << k << " helpers, member " << member;
      }
    }
  }
}

// Bytes that each member sends and receives on the way up; on the way down it is the reverse.
TEST(Sharded, loads_all_nics_alike) {
  const Forest forest = build(Plan::kSharded, some_group(16, 4, 100));
  std::vector<std::uint64_t> bytes(forest.members(), 0);
  for (std::size_t shard = 0; shard < forest.shards.size(); ++shard) {
    for (Member member = 0; member < forest.members(); ++member) {
      const Role role = role_of(forest, shard, member);
      bytes[member] += forest.shards[shard].weight * (role.children.size() + (role.parent == kNobody ? 0 : 1));
    }
  }
  for (Member member = 1; member < forest.members(); ++member) EXPECT_EQ(bytes[member], bytes[0]) << member;
}

TEST(Hierarchical, one_aggregator_per_region_each_rank_as_often_as_the_others) {
  const Group group = some_group(32, 0, 8);
  const Forest forest = build(Plan::kHierarchical, group);
  std::vector<int> turns(32, 0);
  for (std::size_t shard = 0; shard < forest.shards.size(); ++shard) {
    std::vector<int> crossing(4, 0);
    for (Member member = 0; member < 32; ++member) {
      const Member parent = forest.shards[shard].parent[member];
      if (group.region_of(parent) != group.region_of(member)) ++crossing[group.region_of(member)];
    }
    const auto home = group.region_of(forest.shards[shard].root);
    for (std::uint32_t region = 0; region < 4; ++region) EXPECT_EQ(crossing[region], region == home ? 0 : 1);
    for (const Member member : inside(forest, shard)) ++turns[member];
  }
  EXPECT_EQ(turns, std::vector<int>(32, 4));
}

TEST(Ring, crosses_each_uplink_once_in_the_order_of_regions) {
  const Group group = some_group(12, 0, 4);
  const Forest forest = build(Plan::kRing, group);
  for (const Shard& shard : forest.shards) {
    std::vector<int> crossing(3, 0);
    for (Member member = 0; member < 12; ++member) {
      const Member parent = shard.parent[member];
      if (group.region_of(parent) != group.region_of(member)) ++crossing[group.region_of(member)];
    }
    EXPECT_LE(*std::max_element(crossing.begin(), crossing.end()), 1);
  }
}

// Of sums and of results, so that nobody's port has two senders.
TEST(Ring, everybody_sends_to_one_and_receives_from_one) {
  const Group group = some_group(9, 0, 4, 7);
  const Forest forest = build(Plan::kRing, group);
  for (Member member = 0; member < 9; ++member) {
    std::set<Member> sends, receives;
    for (std::size_t shard = 0; shard < forest.shards.size(); ++shard) {
      const Role role = role_of(forest, shard, member);
      sends.insert(role.takers.begin(), role.takers.end());
      receives.insert(role.children.begin(), role.children.end());
      if (role.parent != kNobody) sends.insert(role.parent), receives.insert(role.giver);
    }
    EXPECT_EQ(sends.size(), 1u);
    EXPECT_EQ(receives.size(), 1u);
  }
}

TEST(Plans, that_would_be_another_make_no_sense) {
  const Group flat = make_group(4, 0, one_region(4));
  EXPECT_FALSE(makes_sense(Plan::kSharded, flat));
  EXPECT_FALSE(makes_sense(Plan::kHierarchical, flat));
  EXPECT_TRUE(makes_sense(Plan::kRing, flat));
  EXPECT_TRUE(makes_sense(Plan::kHierarchical, some_group(4, 0, 2)));
  for (const Plan plan : kPlans) EXPECT_EQ(plan_of(to_string(plan)), plan);
  EXPECT_FALSE(plan_of("tree"));
}

}  // namespace
}  // namespace clustar::paraexpress
