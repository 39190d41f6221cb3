#include "paraexpress/core/lateness.h"

#include <algorithm>
#include <cmath>

namespace clustar::paraexpress {

double Lateness::take_mean() {
  const double mean = operations_ == 0 ? 0 : sum_ / static_cast<double>(operations_);
  sum_ = 0;
  operations_ = 0;
  return mean;
}

std::vector<double> lags_of(std::span<const double> means) {
  if (means.empty()) return {};
  const auto [shortest, longest] = std::ranges::minmax(means);
  if (longest - shortest <= std::max(kNoise * shortest, kLeastLag)) return {};
  std::vector<double> lags;
  for (const double mean : means) lags.push_back(longest - mean);
  return lags;
}

bool differs(std::span<const double> known, std::span<const double> found) {
  constexpr double kChange = 0.25;
  if (known.size() != found.size()) return true;
  double largest = 0, change = 0;
  for (std::size_t i = 0; i < known.size(); ++i) {
    largest = std::max({largest, known[i], found[i]});
    change = std::max(change, std::abs(known[i] - found[i]));
  }
  return change > kChange * largest;
}

}  // namespace clustar::paraexpress
