// A helper dies at any moment, and each rank notices at a time of its own: what the ranks then agree on gives all of
// them the sum of all, bit for bit.
#include <gtest/gtest.h>

#include <algorithm>

#include "paraexpress/core/agreement.h"
#include "paraexpress/core/plans/build.h"
#include "tests/unit/paraexpress/core/program_cluster.h"

namespace clustar::paraexpress::program_test {
namespace {

constexpr DataType kType = DataType::kFloat32;

// The ranks' elements of a range, through a star of all ranks.
bool through_star(std::vector<Bytes>& memory, Member root, Collective collective, const ElementRange& range,
                  const Limits& limits, std::uint64_t seed) {
  const auto ranks = static_cast<std::uint32_t>(memory.size());
  std::vector<Bytes> parts;
  for (const Bytes& one : memory) parts.push_back(part_of(one, range, kType));
  Cluster cluster(star_of_ranks(ranks, root), collective, {kType, Reduction::kSum, range.size()}, parts, limits, seed);
  if (!cluster.run()) return false;
  for (Member rank = 0; rank < ranks; ++rank) {
    std::ranges::copy(cluster.memory(rank),
                      memory[rank].begin() + static_cast<std::ptrdiff_t>(range.begin * element_bytes(kType)));
  }
  return true;
}

TEST(HelperLoss, WhateverWasDoneTheSumsAreExact) {
  int lost = 0, made_up_by_giving = 0, made_up_by_summing = 0, nobody_noticed = 0;
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    Rng rng(seed);
    const auto ranks = static_cast<std::uint32_t>(2 + rng.below(4)),
               helpers = static_cast<std::uint32_t>(1 + rng.below(3));
    const Group group = make_group(ranks, helpers, one_region(ranks + helpers));
    const Plan plan = rng.chance(0.8) ? Plan::kSharded : Plan::kServer;
    const Forest forest = build(plan, group);
    const std::uint64_t count = 1 + rng.below(120);
    const Limits limits{1 + rng.below(12), 1 + static_cast<std::uint32_t>(rng.below(3)),
                        1 + static_cast<std::uint32_t>(rng.below(3))};
    std::vector<Bytes> memory;
    for (Member rank = 0; rank < ranks; ++rank) memory.push_back(contribution(kType, count, rank));
    const Bytes expected = reduction_of(build(Plan::kDirect, group), count, memory, kType, Reduction::kSum);
    // The server is the first helper; of the others only shares can be lost.
    const auto helper = plan == Plan::kServer ? 0 : static_cast<std::uint32_t>(rng.below(helpers));
    const Member victim = ranks + helper;
    Cluster cluster(forest, Collective::kAllReduce, {kType, Reduction::kSum, count}, memory, limits, seed);
    cluster.kill(victim, rng.below(3 * count));
    ASSERT_TRUE(cluster.run()) << "stands still, seed " << seed;
    for (Member rank = 0; rank < ranks; ++rank) memory[rank] = cluster.memory(rank);

    const auto ranges = element_ranges(forest, count);
    ElementRange range;
    for (std::size_t i = 0; i < ranges.size(); ++i) {
      if (forest.shards[i].root == victim) range = ranges[i];
    }
    std::vector<std::uint64_t> maxima(2, 0);
    for (Member rank = 0; rank < ranks; ++rank) {
      const HelperView view{cluster.lost(rank), cluster.lost(rank) ? cluster.came(rank) : range.size()};
      const auto numbers = encode_views({&view, 1}, rank);
      for (std::size_t i = 0; i < 2; ++i) maxima[i] = std::max(maxima[i], numbers[i]);
    }
    const HelperFate fate = decode_fates(maxima).front();
    if (fate.lost) {
      ++lost;
      const ElementRange known{range.begin, range.begin + fate.elements}, rest{range.begin + fate.elements, range.end};
      made_up_by_giving += known.size() > 0 ? 1 : 0;
      made_up_by_summing += rest.size() > 0 ? 1 : 0;
      ASSERT_TRUE(through_star(memory, fate.holder, Collective::kAllGather, known, limits, seed));
      ASSERT_TRUE(through_star(memory, fate.holder, Collective::kAllReduce, rest, limits, seed + 1));
    } else {
      ++nobody_noticed;
    }
    for (Member rank = 0; rank < ranks; ++rank) {
      ASSERT_TRUE(memory[rank] == expected)
          << "rank " << rank << " of " << ranks << ", " << helpers << " helpers, seed " << seed;
    }
  }
  EXPECT_GT(lost, 1000);
  EXPECT_GT(made_up_by_giving, 200);
  EXPECT_GT(made_up_by_summing, 500);
  EXPECT_GT(nobody_noticed, 100);
}

}  // namespace
}  // namespace clustar::paraexpress::program_test
