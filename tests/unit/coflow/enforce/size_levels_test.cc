#include "coflow/enforce/size_levels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "transport/base/rng.h"

namespace clustar::coflow::enforce {
namespace {

// Mean completion time with these limits, straight from the formula.
double mean_time(const std::vector<SizeShare>& sizes, const std::vector<std::uint64_t>& limits, double load) {
  double mean = 0, all = 0;
  for (const SizeShare& one : sizes) {
    mean += one.share * static_cast<double>(one.bytes);
    all += one.share;
  }
  const double lambda = load * all / mean;
  const auto moment = [&](double limit, int power) {
    double sum = 0;
    for (const SizeShare& one : sizes)
      sum += one.share / all * std::pow(std::min(static_cast<double>(one.bytes), limit), power);
    return sum;
  };
  double time = 0;
  for (const SizeShare& one : sizes) {
    double below = 0, above = std::numeric_limits<double>::infinity();
    for (const std::uint64_t limit : limits) {
      if (limit < one.bytes) below = static_cast<double>(limit);
      if (limit >= one.bytes) above = std::min(above, static_cast<double>(limit));
    }
    if (std::isinf(above)) above = static_cast<double>(sizes.back().bytes);
    const double before = 1 - lambda * moment(below, 1);
    time += one.share / all *
            (lambda * moment(above, 2) / (2 * before * (1 - lambda * moment(above, 1))) +
             static_cast<double>(one.bytes) / before);
  }
  return time;
}

TEST(BestLimits, AreNoWorseThanAnyOther) {
  Rng rng(7);
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<SizeShare> sizes;
    std::uint64_t bytes = 1000;
    for (int i = 0; i < 7; ++i) {
      sizes.push_back({bytes, 0.01 + rng.uniform()});
      bytes += 1 + rng.below(bytes * 8);
    }
    const double load = 0.3 + 0.6 * rng.uniform();
    const auto best = best_limits(sizes, 3, load);
    EXPECT_LE(best.size(), 2u);
    EXPECT_TRUE(std::is_sorted(best.begin(), best.end()));
    const double reached = mean_time(sizes, best, load);
    EXPECT_LE(reached, mean_time(sizes, {}, load) * (1 + 1e-9));
    for (std::size_t i = 0; i + 1 < sizes.size(); ++i) {
      EXPECT_LE(reached, mean_time(sizes, {sizes[i].bytes}, load) * (1 + 1e-9));
      for (std::size_t j = i + 1; j + 1 < sizes.size(); ++j) {
        EXPECT_LE(reached, mean_time(sizes, {sizes[i].bytes, sizes[j].bytes}, load) * (1 + 1e-9));
      }
    }
  }
}

// ZeRO-3 of a model of 7 billion parameters as AICB has it: its small messages are a level of their own, and its two
// large sizes too alike for one more to pay.
TEST(BestLimits, OfATrainingJobLieAtItsSizes) {
  const std::vector<SizeShare> sizes{{8'192, 195}, {33'600'000, 256}, {90'200'000, 192}};
  const auto limits = best_limits(sizes, 4, 0.8);
  EXPECT_EQ(limits, (std::vector<std::uint64_t>{8'192}));
}

TEST(BestLimits, OfOneSizeOrOneLevelAreNone) {
  EXPECT_TRUE(best_limits(std::vector<SizeShare>{{1000, 1}}, 8, 0.8).empty());
  EXPECT_TRUE(best_limits(std::vector<SizeShare>{{1000, 1}, {2000, 1}}, 1, 0.8).empty());
  EXPECT_TRUE(best_limits({}, 8, 0.8).empty());
}

TEST(SizeLevels, GrowWithTheSize) {
  std::uint64_t before = 0;
  for (std::uint64_t bytes = 1; bytes < std::uint64_t{1} << 62; bytes += 1 + bytes / 5) {
    const std::uint64_t level = SizeLevels::of_size(bytes);
    EXPECT_GE(level, before);
    EXPECT_LE(level, SizeLevels::kMost);
    before = level;
  }
  EXPECT_EQ(SizeLevels::of_size(64 * 1024), 0u);
  EXPECT_LT(SizeLevels::of_size(1 << 20), SizeLevels::of_size(3 << 19)) << "half as much again";
}

TEST(SizeLevels, WhatWasSentIsPlacedAmongTheKnown) {
  const SizeLevels levels;
  EXPECT_EQ(levels.of_attained(0), 0u);
  EXPECT_EQ(levels.of_attained(999'999), 0u);
  EXPECT_EQ(levels.of_attained(1'000'000), SizeLevels::of_size(1'000'000));
  EXPECT_EQ(levels.of_attained(7'999'999), SizeLevels::of_size(4'000'000));
}

TEST(SizeLevels, LearnsFromWhatCame) {
  SizeLevels levels;
  for (std::uint64_t i = 0; i < SizeLevels::kLearn; ++i) levels.saw(i % 3 == 0 ? 8'192 : 33'600'000 * (1 + i % 2));
  ASSERT_FALSE(levels.limits().empty());
  EXPECT_EQ(levels.limits().front(), 8'192u);
  EXPECT_EQ(levels.of_attained(10'000), 0u) << "mice and what is beyond them begin alike";
}

}  // namespace
}  // namespace clustar::coflow::enforce
