#include "bench/perf/statistics.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>

namespace clustar::bench::perf {
namespace {

constexpr int kResamples = 10'000;

// Reorders `values`.
double median_in_place(std::span<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*std::max_element(values.begin(), middle) + *middle) / 2;
}

// Of n ordered values, how many may be left out at each end so that the rest still covers the distribution's median in
// at least 95 % of cases: a value lies on either side of the median with probability one half.
std::size_t trimmed_ends(std::size_t n) {
  double tail = std::ldexp(1.0, -static_cast<int>(n));  // P(Binomial(n, 1/2) <= left_out)
  double term = tail;
  std::size_t left_out = 0;
  for (; 2 * (left_out + 1) < n; ++left_out) {
    term *= static_cast<double>(n - left_out) / static_cast<double>(left_out + 1);
    tail += term;
    if (2 * tail > 0.05) break;
  }
  return left_out;
}

}  // namespace

double median(std::span<const double> values) {
  std::vector<double> copy(values.begin(), values.end());
  return median_in_place(copy);
}

Spread spread(std::span<const double> values) {
  if (values.empty()) return {};
  const auto [min, max] = std::minmax_element(values.begin(), values.end());
  return {median(values), *min, *max};
}

double quantile(std::span<double> values, double q) {
  if (values.empty()) return 0;
  const double rank = std::ceil(q * static_cast<double>(values.size()));
  const auto index = std::clamp<std::ptrdiff_t>(static_cast<std::ptrdiff_t>(rank) - 1, 0,
                                                static_cast<std::ptrdiff_t>(values.size()) - 1);
  std::nth_element(values.begin(), values.begin() + index, values.end());
  return values[static_cast<std::size_t>(index)];
}

MedianEstimate median_estimate(std::span<const double> values, std::uint64_t seed) {
  const std::size_t n = values.size();
  if (n == 0) return {};
  std::mt19937_64 random(seed);
  std::vector<double> drawn(n);
  std::vector<double> medians(kResamples);
  for (double& one : medians) {
    // The engine's output is fixed by the standard, a distribution's is not: remainder keeps intervals repeatable.
    for (double& value : drawn) value = values[random() % n];
    one = median_in_place(drawn);
  }
  std::vector<double> ordered(values.begin(), values.end());
  std::sort(ordered.begin(), ordered.end());
  const std::size_t trimmed = trimmed_ends(n);
  return {median(ordered), std::min(ordered[trimmed], quantile(medians, 0.025)),
          std::max(ordered[n - 1 - trimmed], quantile(medians, 0.975))};
}

RatioEstimate paired_ratio(std::span<const double> a, std::span<const double> b, std::uint64_t seed) {
  std::vector<double> ratios(std::min(a.size(), b.size()));
  for (std::size_t i = 0; i < ratios.size(); ++i) ratios[i] = a[i] / b[i];
  const MedianEstimate estimate = median_estimate(ratios, seed);
  return {estimate.median, estimate.low, estimate.high};
}

// Values below 2^kSubBits have a bucket each; above, the kSubBits bits after the leading one choose it.
std::size_t Histogram::bucket_of(std::uint64_t value) {
  const int width = std::bit_width(value);
  if (width <= kSubBits) return static_cast<std::size_t>(value);
  const int shift = width - 1 - kSubBits;
  const std::uint64_t sub = (value >> shift) - (std::uint64_t{1} << kSubBits);
  return (static_cast<std::size_t>(shift + 1) << kSubBits) + static_cast<std::size_t>(sub);
}

double Histogram::middle_of(std::size_t bucket) {
  const std::size_t row = bucket >> kSubBits;
  const auto sub = static_cast<double>(bucket & ((std::size_t{1} << kSubBits) - 1));
  if (row == 0) return sub;
  return std::ldexp(std::ldexp(1.0, kSubBits) + sub + 0.5, static_cast<int>(row) - 1);
}

void Histogram::add(std::uint64_t nanoseconds, std::uint64_t count) {
  buckets_[bucket_of(nanoseconds)] += count;
  count_ += count;
}

void Histogram::merge(const Histogram& other) {
  for (std::size_t i = 0; i < kBuckets; ++i) buckets_[i] += other.buckets_[i];
  count_ += other.count_;
}

double Histogram::quantile(double q) const {
  if (count_ == 0) return 0;
  const auto rank = static_cast<std::uint64_t>(std::max(1.0, std::ceil(q * static_cast<double>(count_))));
  std::uint64_t seen = 0;
  for (std::size_t i = 0; i < kBuckets; ++i) {
    seen += buckets_[i];
    if (seen >= rank) return middle_of(i);
  }
  return middle_of(kBuckets - 1);
}

std::vector<std::pair<std::size_t, std::uint64_t>> Histogram::sparse() const {
  std::vector<std::pair<std::size_t, std::uint64_t>> used;
  for (std::size_t i = 0; i < kBuckets; ++i) {
    if (buckets_[i] > 0) used.emplace_back(i, buckets_[i]);
  }
  return used;
}

bool Histogram::add_sparse(std::span<const std::pair<std::size_t, std::uint64_t>> buckets) {
  if (std::any_of(buckets.begin(), buckets.end(), [](const auto& entry) { return entry.first >= kBuckets; })) {
    return false;
  }
  for (const auto& [bucket, count] : buckets) {
    buckets_[bucket] += count;
    count_ += count;
  }
  return true;
}

}  // namespace clustar::bench::perf
