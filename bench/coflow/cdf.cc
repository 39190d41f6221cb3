#include "bench/coflow/cdf.h"

#include <algorithm>

namespace clustar::bench::coflow {

std::vector<std::pair<double, double>> cdf(const std::vector<double>& ascending, std::size_t most) {
  std::vector<std::pair<double, double>> curve;
  const std::size_t points = std::min(ascending.size(), most);
  for (std::size_t i = 0; i < points; ++i) {
    const std::size_t place = points == 1 ? 0 : i * (ascending.size() - 1) / (points - 1);
    const double value = ascending[place];
    if (!curve.empty() && curve.back().first == value) continue;
    // Equal values are one step, up to the last of them.
    const auto above = std::upper_bound(ascending.begin(), ascending.end(), value) - ascending.begin();
    curve.emplace_back(value, static_cast<double>(above) / static_cast<double>(ascending.size()));
  }
  return curve;
}

}  // namespace clustar::bench::coflow
