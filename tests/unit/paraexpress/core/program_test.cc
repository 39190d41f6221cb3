// All members of a group run their programs over a network that delivers when it likes: the results of all collectives
// are exact, in the plan's order of addition, and nothing stands still, however few messages may be posted.
#include "paraexpress/core/program.h"

#include <gtest/gtest.h>

#include <functional>
#include <utility>

#include "paraexpress/core/plans/build.h"
#include "tests/unit/paraexpress/core/program_cluster.h"
#include "transport/base/rng.h"

namespace clustar::paraexpress {
namespace {

using namespace program_test;

Group shuffled_group(std::uint32_t ranks, std::uint32_t region_size, std::uint64_t seed) {
  Group group = make_group(ranks, 0, equal_regions(ranks, region_size, 4));
  Rng rng(seed);
  for (std::size_t i = group.order.size(); seed != 0 && i > 1; --i)
    std::swap(group.order[i - 1], group.order[rng.below(i)]);
  return group;
}

std::vector<Bytes> contributions(const Elements& elements, std::uint32_t ranks) {
  std::vector<Bytes> all;
  for (Member rank = 0; rank < ranks; ++rank) all.push_back(contribution(elements.type, elements.count, rank));
  return all;
}

// Something for each run: every datatype and reduction comes in turn.
Elements elements_of(std::uint64_t run, std::uint64_t count) {
  return {static_cast<DataType>(run % kDataTypes), static_cast<Reduction>(run / kDataTypes % kReductions), count};
}

Limits limits_of(Rng& rng) {
  return {1 + rng.below(90), 1 + static_cast<std::uint32_t>(rng.below(3)),
          1 + static_cast<std::uint32_t>(rng.below(3))};
}

// Each plan that the collective can go by, in groups of 1 to 17 ranks.
void for_each_plan(Collective collective, std::uint64_t seeds,
                   const std::function<void(const Forest& forest, std::uint64_t run, Rng& rng)>& body) {
  std::uint64_t run = 0;
  for (std::uint32_t n = 1; n <= 17; ++n) {
    for (std::uint64_t seed = 0; seed < seeds; ++seed) {
      const Group group = shuffled_group(n, 4, seed);
      for (const Plan plan : kPlans) {
        if (!makes_sense(plan, group)) continue;
        const Forest forest = build(plan, group);
        if (!goes_by(collective, plan, forest)) continue;
        Rng rng(seed * 100 + n);
        SCOPED_TRACE(testing::Message() << to_string(plan) << " n=" << n << " seed " << seed);
        body(forest, run++, rng);
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
  EXPECT_GT(run, 40 * seeds);
}

TEST(Program, EveryPlanGivesItsExactSumOnEveryRankInAnyOrderOfEvents) {
  for_each_plan(Collective::kAllReduce, 6, [](const Forest& forest, std::uint64_t run, Rng& rng) {
    const Elements elements = elements_of(run, run % 6 == 0 ? forest.ranks - 1 : rng.below(700));
    const auto memory = contributions(elements, forest.ranks);
    Cluster cluster(forest, Collective::kAllReduce, elements, memory, limits_of(rng), run);
    ASSERT_TRUE(cluster.run()) << "it stands still";
    const Bytes expected = reduction_of(forest, elements.count, memory, elements.type, elements.reduction);
    for (Member rank = 0; rank < forest.ranks; ++rank) ASSERT_EQ(cluster.memory(rank), expected);
  });
}

TEST(Program, AReduceScatterLeavesEachRankTheReductionOfItsBlock) {
  for_each_plan(Collective::kReduceScatter, 6, [](const Forest& forest, std::uint64_t run, Rng& rng) {
    const std::uint64_t block = 1 + rng.below(90);
    const Elements elements = elements_of(run, block * forest.ranks);
    const auto memory = contributions(elements, forest.ranks);
    Cluster cluster(forest, Collective::kReduceScatter, elements, memory, limits_of(rng), run);
    ASSERT_TRUE(cluster.run()) << "it stands still";
    const Bytes expected = reduction_of(forest, elements.count, memory, elements.type, elements.reduction);
    for (Member rank = 0; rank < forest.ranks; ++rank) {
      const ElementRange mine{rank * block, (rank + 1) * block};
      ASSERT_EQ(part_of(cluster.memory(rank), mine, elements.type), part_of(expected, mine, elements.type));
    }
  });
}

TEST(Program, APushLeavesTheSumsWithTheRootsAndAPullBringsThemToAll) {
  for_each_plan(Collective::kPush, 6, [](const Forest& forest, std::uint64_t run, Rng& rng) {
    const Elements elements = elements_of(run, run % 6 == 0 ? forest.ranks - 1 : rng.below(700));
    const auto memory = contributions(elements, forest.ranks);
    Cluster push(forest, Collective::kPush, elements, memory, limits_of(rng), run);
    ASSERT_TRUE(push.run()) << "the push stands still";
    const Bytes expected = reduction_of(forest, elements.count, memory, elements.type, elements.reduction);
    const auto ranges = element_ranges(forest, elements.count);
    for (std::size_t shard = 0; shard < ranges.size(); ++shard) {
      ASSERT_EQ(part_of(push.memory(forest.shards[shard].root), ranges[shard], elements.type),
                part_of(expected, ranges[shard], elements.type));
    }
    Cluster pull(forest, Collective::kPull, elements, push.memory(), limits_of(rng), run + 1);
    ASSERT_TRUE(pull.run()) << "the pull stands still";
    for (Member rank = 0; rank < forest.ranks; ++rank) ASSERT_EQ(pull.memory(rank), expected);
  });
}

TEST(Program, ABroadcastBringsTheRootsElementsToAll) {
  for_each_plan(Collective::kBroadcast, 2, [](const Forest& forest, std::uint64_t run, Rng& rng) {
    for (Member root = 0; root < forest.ranks; ++root) {
      const Forest tree = tree_of(forest, root);
      ASSERT_EQ(inconsistency(tree), "");
      const Elements elements{DataType::kUint8, Reduction::kSum, rng.below(300)};
      const auto memory = contributions(elements, forest.ranks);
      Cluster cluster(tree, Collective::kBroadcast, elements, memory, limits_of(rng), run);
      ASSERT_TRUE(cluster.run()) << "it stands still";
      for (Member rank = 0; rank < forest.ranks; ++rank) ASSERT_EQ(cluster.memory(rank), memory[root]);
    }
  });
}

TEST(Program, AnAllGatherBringsEachBlockToAll) {
  for_each_plan(Collective::kAllGather, 2, [](const Forest& forest, std::uint64_t run, Rng& rng) {
    const std::uint64_t block = 1 + rng.below(50);
    const Elements elements{DataType::kUint8, Reduction::kSum, forest.ranks * block};
    const auto memory = contributions(elements, forest.ranks);
    Cluster cluster(forest, Collective::kAllGather, elements, memory, limits_of(rng), run);
    ASSERT_TRUE(cluster.run()) << "it stands still";
    Bytes expected;
    for (Member rank = 0; rank < forest.ranks; ++rank) {
      const Bytes mine = part_of(memory[rank], {rank * block, (rank + 1) * block}, elements.type);
      expected.insert(expected.end(), mine.begin(), mine.end());
    }
    for (Member rank = 0; rank < forest.ranks; ++rank) ASSERT_EQ(cluster.memory(rank), expected);
  });
}

// A helper has no memory of an operation once it is over, and it is no rank.
TEST(Program, WhatGoesByTreesWithHelpers) {
  const Group group = make_group(4, 2, equal_regions(6, 6, 1));
  for (const Plan plan : {Plan::kSharded, Plan::kServer}) {
    const Forest forest = build(plan, group);
    for (const Collective other : {Collective::kAllGather, Collective::kReduceScatter, Collective::kBroadcast,
                                   Collective::kPush, Collective::kPull}) {
      EXPECT_FALSE(goes_by(other, plan, forest)) << to_string(plan);
    }
    EXPECT_TRUE(goes_by(Collective::kAllReduce, plan, forest));
  }
  EXPECT_TRUE(goes_by(Collective::kPush, Plan::kDoubleTree, build(Plan::kDoubleTree, group)));
  EXPECT_FALSE(goes_by(Collective::kReduceScatter, Plan::kDoubleTree, build(Plan::kDoubleTree, group)));
}

TEST(Program, ALinkOfARingGetsItsMessagesInTheRingsOrder) {
  const Group group = make_group(4, 0, equal_regions(4, 4, 1));
  const Forest forest = build(Plan::kRing, group);
  const Program program(seat_of(forest, 2), Collective::kAllReduce, element_ranges(forest, 4), 1, 1);
  for (std::size_t link = 0; link < program.links(); ++link) {
    const Program::Link facts = program.link(link);
    EXPECT_EQ(facts.elements, 3U) << "of four shards, all but one pass each link";
    const auto first = program.next(link);
    if (facts.sends && facts.up) {
      ASSERT_TRUE(first) << "every rank begins with the shard of which it is the leaf";
      EXPECT_EQ(role_of(forest, first->range.begin, 2).children.size(), 0U);
    } else if (facts.up) {
      ASSERT_TRUE(first);
      EXPECT_EQ(role_of(forest, first->range.begin, facts.peer).children.size(), 0U);
    } else {
      EXPECT_FALSE(first && facts.sends) << "nobody has a result yet";
    }
  }
}

TEST(Program, NoElementsAreDoneAtOnce) {
  const Forest forest = build(Plan::kDirect, make_group(3, 0, equal_regions(3, 3, 1)));
  const Program program(seat_of(forest, 1), Collective::kAllReduce, element_ranges(forest, 0), 8, 1);
  EXPECT_TRUE(program.done());
  EXPECT_EQ(program.links(), 0U);
}

}  // namespace
}  // namespace clustar::paraexpress
