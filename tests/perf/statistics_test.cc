// The numbers behind a comparison, on data whose truth is known.
#include "bench/perf/statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

namespace clustar::bench::perf {
namespace {

TEST(Median, OddEvenAndNone) {
  EXPECT_EQ(median(std::vector<double>{}), 0);
  EXPECT_EQ(median(std::vector<double>{3}), 3);
  EXPECT_EQ(median(std::vector<double>{9, 1, 5}), 5);
  EXPECT_EQ(median(std::vector<double>{4, 1, 9, 2}), 3);
}

TEST(Spread, MedianMinMax) {
  const Spread s = spread(std::vector<double>{4, 8, 2});
  EXPECT_EQ(s.median, 4);
  EXPECT_EQ(s.min, 2);
  EXPECT_EQ(s.max, 8);
}

TEST(Quantile, NearestRank) {
  std::vector<double> values(100);
  std::iota(values.rbegin(), values.rend(), 1.0);
  EXPECT_EQ(quantile(values, 0.5), 50);
  EXPECT_EQ(quantile(values, 0.99), 99);
  EXPECT_EQ(quantile(values, 1.0), 100);
  EXPECT_EQ(quantile(values, 0.0), 1);
}

TEST(Histogram, QuantilesAreWithinOnePercent) {
  Histogram histogram;
  std::vector<double> exact;
  std::mt19937_64 random(5);
  for (int i = 0; i < 20'000; ++i) {
    const std::uint64_t value = (random() % 1000 + 1) * (std::uint64_t{1} << (random() % 30));
    histogram.add(value);
    exact.push_back(static_cast<double>(value));
  }
  for (const double q : {0.01, 0.5, 0.9, 0.99, 0.999}) {
    const double truth = quantile(exact, q);
    EXPECT_NEAR(histogram.quantile(q), truth, truth * 0.01) << q;
  }
  EXPECT_EQ(histogram.count(), 20'000u);
}

TEST(Histogram, ExtremesHaveABucket) {
  Histogram histogram;
  histogram.add(0);
  EXPECT_EQ(histogram.quantile(0.5), 0);
  histogram.add(~std::uint64_t{0}, 3);
  EXPECT_NEAR(histogram.quantile(0.9), std::ldexp(1.0, 64), std::ldexp(1.0, 64) * 0.01);
}

TEST(Histogram, SparseFormAndMergeKeepCounts) {
  Histogram a, b;
  for (std::uint64_t i = 0; i < 1000; ++i) (i % 2 ? a : b).add(i * i);
  Histogram merged;
  EXPECT_TRUE(merged.add_sparse(a.sparse()));
  merged.merge(b);
  EXPECT_EQ(merged.count(), 1000u);
  EXPECT_NEAR(merged.quantile(0.5), 499.0 * 499.0, 499.0 * 499.0 * 0.01);
  const std::vector<std::pair<std::size_t, std::uint64_t>> beyond{{1u << 20, 1}};
  EXPECT_FALSE(merged.add_sparse(beyond));
  EXPECT_EQ(merged.count(), 1000u);
}

// Samples of one arm: a level, a disturbance that both arms of the pair share, and noise of its own with a long tail.
struct Simulation {
  explicit Simulation(std::uint64_t seed) : random(seed) {}
  double unit() { return static_cast<double>(random() >> 11) * 0x1p-53; }
  double noise(double scale) {
    const double u = unit();
    return std::exp(scale * (u < 0.1 ? -4 * unit() : unit() - 0.5));
  }
  void pairs(int n, double ratio, double scale, std::vector<double>& a, std::vector<double>& b) {
    a.clear();
    b.clear();
    for (int i = 0; i < n; ++i) {
      const double level = 40 * (0.3 + unit());  // the machine's mood
      a.push_back(level * ratio * noise(scale));
      b.push_back(level * noise(scale));
    }
  }
  std::mt19937_64 random;
};

TEST(PairedRatio, SameAgainstSameContainsOne) {
  // Pairs, and how many of 400 intervals must contain the truth: 95 % less three standard deviations; 5 pairs give 93.8
  // %.
  for (const auto& [rounds, least] : {std::pair{5, 360}, {6, 367}, {7, 367}, {11, 367}, {20, 367}}) {
    int covered = 0;
    std::vector<double> a, b;
    for (std::uint64_t run = 0; run < 400; ++run) {
      Simulation simulation(1000 * run + static_cast<std::uint64_t>(rounds));
      simulation.pairs(rounds, 1.0, 0.2, a, b);
      const RatioEstimate estimate = paired_ratio(a, b, run);
      covered += estimate.low <= 1 && estimate.high >= 1 ? 1 : 0;
    }
    EXPECT_GE(covered, least) << rounds << " rounds";
    // An interval that always contains 1 says nothing.
    EXPECT_LT(covered, 400) << rounds << " rounds";
  }
}

TEST(PairedRatio, ADifferenceIsSeenThroughACommonDisturbance) {
  int seen = 0;
  std::vector<double> a, b;
  for (std::uint64_t run = 0; run < 200; ++run) {
    Simulation simulation(run);
    simulation.pairs(9, 1.1, 0.02, a, b);
    const RatioEstimate estimate = paired_ratio(a, b, run);
    EXPECT_NEAR(estimate.ratio, 1.1, 0.05);
    seen += estimate.low > 1 ? 1 : 0;
  }
  EXPECT_GE(seen, 195);  // the levels alone vary by a factor of four
}

TEST(PairedRatio, SameSeedSameInterval) {
  std::vector<double> a, b;
  Simulation(3).pairs(7, 1.0, 0.2, a, b);
  const RatioEstimate one = paired_ratio(a, b, 11);
  const RatioEstimate two = paired_ratio(a, b, 11);
  EXPECT_EQ(one.low, two.low);
  EXPECT_EQ(one.high, two.high);
  EXPECT_LE(one.low, one.ratio);
  EXPECT_GE(one.high, one.ratio);
}

TEST(MedianEstimate, IsThatOfRatiosToOne) {
  const std::vector<double> values{0.4, -0.2, 1.5, 0.7, 0.6, -3, 0.9};  // gains may be negative
  const std::vector<double> ones(values.size(), 1.0);
  const MedianEstimate estimate = median_estimate(values, 5);
  const RatioEstimate ratio = paired_ratio(values, ones, 5);
  EXPECT_EQ(estimate.median, 0.6);
  EXPECT_EQ(estimate.low, ratio.low);
  EXPECT_EQ(estimate.high, ratio.high);
  EXPECT_LT(estimate.low, 0);
  EXPECT_EQ(median_estimate({}, 5).high, 0);
}

TEST(PairedRatio, WithoutPairsThereIsNone) {
  const RatioEstimate none = paired_ratio({}, {}, 1);
  EXPECT_EQ(none.ratio, 0);
  EXPECT_EQ(none.high, 0);
}

}  // namespace
}  // namespace clustar::bench::perf
