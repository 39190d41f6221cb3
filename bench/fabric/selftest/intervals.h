// Where a measured count may lie when the rule is what was asked for. Pure.
#pragma once

#include <cstdint>
#include <vector>

namespace clustar::bench::fabric::selftest {

inline constexpr double kConfidence = 0.99;
// Where time decides which packets are drawn for, so that each run is another draw and not the seed's.
inline constexpr double kTimedConfidence = 0.999;
inline constexpr double kDeviations = 2.5758;  // of a normal distribution, for kConfidence

struct Interval {
  double low = 0, high = 0;
  bool contains(double value) const { return value >= low && value <= high; }
};

// The smallest one with at most (1 - confidence) / 2 of all outcomes below it and above it. Exact.
Interval binomial_interval(std::uint64_t n, double p, double confidence = kConfidence);
// Of a sum of independent draws with the chances `low` at least and `high` at most, packet by packet (normal
// approximation).
Interval sum_interval(const std::vector<double>& low, const std::vector<double>& high);

// Gilbert-Elliott that loses all packets of the bad state and none of the good one, over n packets: the lost share, and
// the mean length of runs of losses. Normal approximation; the states' correlation is 1 - to_bad - to_good.
Interval gilbert_loss_interval(std::uint64_t n, double to_bad, double to_good);
Interval gilbert_run_interval(std::uint64_t runs, double to_good);

}  // namespace clustar::bench::fabric::selftest
