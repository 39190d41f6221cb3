// The span of the values that a plot shows.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

namespace clustar::bench::report {

struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();

  // What is infinite has no place in a plot.
  void take(double value) {
    if (!std::isfinite(value)) return;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  bool empty() const { return low > high; }
  // How many times the largest value is the smallest; 1 where that says nothing.
  double span() const { return low > 0 ? high / low : 1; }
};

}  // namespace clustar::bench::report
