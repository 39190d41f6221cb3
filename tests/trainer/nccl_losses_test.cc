// What a GPU is told of an exchange's losses, and which gradients it has to keep.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "bench/trainer/nccl/losses.h"

namespace clustar::bench::trainer {
namespace {

using proxy::ElementRange;
using testing::ElementsAre;
using Missing = std::vector<std::vector<ElementRange>>;

// By element, how many contributions are missing.
std::vector<int> without(const Missing& missing, std::size_t count) {
  std::vector<int> all(count);
  for (const auto& ranges : missing) {
    for (const ElementRange& range : ranges) {
      for (std::size_t i = range.begin; i < range.end; ++i) ++all[i];
    }
  }
  return all;
}

Missing drawn(std::mt19937_64& random, int ranks, std::size_t count) {
  Missing missing(static_cast<std::size_t>(ranks));
  for (auto& ranges : missing) {
    for (std::size_t at = random() % 40; at < count;) {
      const std::size_t end = std::min<std::size_t>(count, at + 1 + random() % 30);
      ranges.push_back({at, end});
      at = end + 1 + random() % 60;
    }
  }
  return missing;
}

std::size_t ranges_of(const Missing& missing) {
  std::size_t count = 0;
  for (const auto& ranges : missing) count += ranges.size();
  return count;
}

TEST(JoinRanges, LeavesFewAlone) {
  Missing missing{{{0, 4}, {9, 12}}, {}, {{3, 5}}};
  const Missing before = missing;
  join_ranges(missing, 3);
  EXPECT_EQ(missing, before);
}

TEST(JoinRanges, OverTheSmallestGap) {
  Missing missing{{{0, 4}, {9, 12}, {13, 15}}, {{3, 5}, {25, 30}}};
  join_ranges(missing, 4);
  EXPECT_THAT(missing[0], ElementsAre(ElementRange{0, 4}, ElementRange{9, 15}));
  EXPECT_THAT(missing[1], ElementsAre(ElementRange{3, 5}, ElementRange{25, 30}));
}

TEST(JoinRanges, NoLargeGapBeforeASmallerOneOfAnotherRank) {
  Missing missing{{{0, 1}, {6, 7}, {12, 13}}, {{0, 1}, {2, 3}}};  // gaps of 5, 5 and 1
  join_ranges(missing, 3);
  EXPECT_THAT(missing[0], ElementsAre(ElementRange{0, 7}, ElementRange{12, 13}));
  EXPECT_THAT(missing[1], ElementsAre(ElementRange{0, 3}));
}

TEST(JoinRanges, NeverForgetsAnElementAndKeepsToTheLimit) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 500; ++round) {
    Missing missing = drawn(random, 5, 600);
    const auto before = without(missing, 600);
    const std::size_t most = 5 + random() % 40;
    const std::size_t had = ranges_of(missing);
    join_ranges(missing, most);
    EXPECT_EQ(ranges_of(missing), std::min(had, most)) << "round " << round;
    const auto after = without(missing, 600);
    for (std::size_t i = 0; i < after.size(); ++i) ASSERT_GE(after[i], before[i]) << "round " << round;
  }
}

// Memory that is done with as the kernels would, against the definition.
TEST(MissingTables, ZeroAndScaleAsTheKernelsWill) {
  std::mt19937_64 random(11);
  std::vector<std::uint64_t> words(MissingTables::kWords, 99);
  constexpr int kRanks = 4;
  constexpr std::size_t kCount = 500;
  for (int own = 0; own < kRanks; ++own) {
    Missing missing = drawn(random, kRanks, kCount);
    missing[static_cast<std::size_t>(own)].clear();
    MissingTables tables{words};
    tables.fill(missing, own, kCount * sizeof(float), true);
    std::vector<std::uint8_t> zeroed((kRanks - 1) * kCount * sizeof(float));
    for (std::size_t i = 0; i + 1 < tables.zero().size(); i += 2) {
      for (std::uint64_t at = 0; at < tables.zero()[i + 1]; ++at) ++zeroed.at(tables.zero()[i] + at);
    }
    std::vector<int> scaled(kCount, kRanks);
    for (std::size_t i = 0; i + 2 < tables.segments().size(); i += 3) {
      for (std::uint64_t at = 0; at < tables.segments()[i + 1]; ++at) {
        scaled.at(tables.segments()[i] + at) = static_cast<int>(tables.segments()[i + 2]);
      }
    }
    const auto missed = without(missing, kCount);
    for (std::size_t i = 0; i < kCount; ++i) {
      EXPECT_EQ(scaled[i], kRanks - missed[i]) << "element " << i;
      for (int rank = 0; rank < kRanks; ++rank) {
        if (rank == own) continue;
        const Missing alone{missing[static_cast<std::size_t>(rank)]};
        const auto place = static_cast<std::size_t>(rank < own ? rank : rank - 1);
        EXPECT_EQ(zeroed[(place * kCount + i) * sizeof(float)], without(alone, kCount)[i]);
      }
    }
  }
}

TEST(MissingTables, WithoutRescalingNothingIsScaledAndTheLastExchangeIsForgotten) {
  std::vector<std::uint64_t> words(MissingTables::kWords, 99);
  MissingTables tables{words};
  tables.fill(Missing{{}, {{2, 5}}}, 0, 40, false);
  EXPECT_THAT(tables.zero().first(4), ElementsAre(8, 12, 0, 0));
  EXPECT_THAT(tables.segments(), testing::Each(0u));
}

TEST(MostImportant, AreTheLargestAndAsManyAsAskedFor) {
  EXPECT_THAT(most_important(std::vector<float>{1, 5, 3, 4}, 0.5), ElementsAre(0, 1, 0, 1));
  EXPECT_THAT(most_important(std::vector<float>{1, 5, 3, 4}, 0.3), ElementsAre(0, 1, 0, 1));  // rounded up
  EXPECT_THAT(most_important(std::vector<float>{2, 2, 2}, 0.34), ElementsAre(1, 1, 0));
  EXPECT_THAT(most_important(std::vector<float>{1, 2}, 0), ElementsAre(0, 0));
  EXPECT_THAT(most_important(std::vector<float>{1, 2}, 1), ElementsAre(1, 1));
  EXPECT_TRUE(most_important({}, 0.5).empty());
}

TEST(MostImportant, WhatIsNotANumberIsLarge) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(most_important(std::vector<float>{1, nan, 7, nan}, 0.5), ElementsAre(0, 1, 0, 1));
}

}  // namespace
}  // namespace clustar::bench::trainer
