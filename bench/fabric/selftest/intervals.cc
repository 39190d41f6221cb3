#include "bench/fabric/selftest/intervals.h"

#include <algorithm>
#include <cmath>

namespace clustar::bench::fabric::selftest {

Interval binomial_interval(std::uint64_t n, double p, double confidence) {
  const auto count = static_cast<double>(n);
  if (p <= 0 || n == 0) return {0, 0};
  if (p >= 1) return {count, count};
  const double tail = (1 - confidence) / 2;
  const auto chance = [&](double k) {
    return std::exp(std::lgamma(count + 1) - std::lgamma(k + 1) - std::lgamma(count - k + 1) + k * std::log(p) +
                    (count - k) * std::log1p(-p));
  };
  // Further out there is nothing that a double could add up.
  const double reach = 12 * std::sqrt(count * p * (1 - p)) + 30;
  Interval interval{std::max(0.0, std::floor(count * p - reach)), std::min(count, std::ceil(count * p + reach))};
  for (double sum = chance(interval.low); sum <= tail && interval.low < count; sum += chance(interval.low)) {
    ++interval.low;
  }
  for (double sum = chance(interval.high); sum <= tail && interval.high > 0; sum += chance(interval.high)) {
    --interval.high;
  }
  return interval;
}

Interval sum_interval(const std::vector<double>& low, const std::vector<double>& high) {
  const auto moments = [](const std::vector<double>& chances) {
    double mean = 0, variance = 0;
    for (const double p : chances) {
      mean += p;
      variance += p * (1 - p);
    }
    return std::pair{mean, std::sqrt(variance)};
  };
  const auto [low_mean, low_spread] = moments(low);
  const auto [high_mean, high_spread] = moments(high);
  return {std::max(0.0, std::floor(low_mean - kDeviations * low_spread)),
          std::ceil(high_mean + kDeviations * high_spread)};
}

Interval gilbert_loss_interval(std::uint64_t n, double to_bad, double to_good) {
  const double share = to_bad / (to_bad + to_good);
  const double correlation = 1 - to_bad - to_good;
  const double variance = share * (1 - share) / static_cast<double>(n) * (1 + correlation) / (1 - correlation);
  const double reach = kDeviations * std::sqrt(variance);
  return {std::max(0.0, share - reach), std::min(1.0, share + reach)};
}

Interval gilbert_run_interval(std::uint64_t runs, double to_good) {
  const double reach =
      kDeviations * std::sqrt(1 - to_good) / to_good / std::sqrt(static_cast<double>(std::max<std::uint64_t>(runs, 1)));
  return {std::max(1.0, 1 / to_good - reach), 1 / to_good + reach};
}

}  // namespace clustar::bench::fabric::selftest
