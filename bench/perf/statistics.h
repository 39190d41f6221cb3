// The numbers behind a comparison: medians, pooled quantiles, and what a ratio of two arms is worth.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace clustar::bench::perf {

// 0 for no values; the mean of the two in the middle for an even count.
double median(std::span<const double> values);

struct Spread {
  double median = 0;
  double min = 0;
  double max = 0;
};
Spread spread(std::span<const double> values);

// Nearest rank: the smallest value that at least the fraction `q` of all values does not exceed. 0 for no values.
// Reorders `values`.
double quantile(std::span<double> values, double q);

struct RatioEstimate {
  double ratio = 0;  // median of a[i] / b[i]
  double low = 0;    // 95 % interval
  double high = 0;
};
struct MedianEstimate {
  double median = 0;
  double low = 0;  // 95 % interval
  double high = 0;
};
// Values are resampled (percentile bootstrap of the median, seeded: the same input gives the same interval). That alone
// covers the truth too seldom for few values (87.5 % at 7), so the interval is never narrower than the exact one of the
// sign test, between two of the ordered values: at least 95 % from 6 values on, 93.8 % at 5, whatever the distribution.
MedianEstimate median_estimate(std::span<const double> values, std::uint64_t seed);
// a[i] and b[i] were measured next to each other, so what slowed one slowed the other: the ratio is taken in each pair,
// and their median estimated. Both spans have the same length and positive values.
RatioEstimate paired_ratio(std::span<const double> a, std::span<const double> b, std::uint64_t seed);

// Times in nanoseconds, log-linear: 128 buckets for each power of two, so a quantile is exact to 0.8 %.
class Histogram {
 public:
  void add(std::uint64_t nanoseconds, std::uint64_t count = 1);
  void merge(const Histogram& other);
  std::uint64_t count() const { return count_; }
  // Nanoseconds (middle of the bucket); 0 when empty.
  double quantile(double q) const;

  // (bucket, count) of the buckets in use, for another process.
  std::vector<std::pair<std::size_t, std::uint64_t>> sparse() const;
  // False when a bucket does not exist.
  bool add_sparse(std::span<const std::pair<std::size_t, std::uint64_t>> buckets);

 private:
  static constexpr int kSubBits = 7;
  static constexpr std::size_t kBuckets = (64 - kSubBits + 1) << kSubBits;
  static std::size_t bucket_of(std::uint64_t value);
  static double middle_of(std::size_t bucket);

  std::vector<std::uint64_t> buckets_ = std::vector<std::uint64_t>(kBuckets, 0);
  std::uint64_t count_ = 0;
};

}  // namespace clustar::bench::perf
