// Distributions as curves of few points.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace clustar::bench::coflow {

inline constexpr std::size_t kCdfPoints = 200;

// (value, share of all that are no larger), of values in ascending order: all of them, or `most` (2 at least) at even
// distances of rank, among them the least and the largest.
std::vector<std::pair<double, double>> cdf(const std::vector<double>& ascending, std::size_t most = kCdfPoints);

}  // namespace clustar::bench::coflow
