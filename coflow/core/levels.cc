#include "coflow/core/levels.h"

#include <cmath>

namespace clustar::coflow {

std::vector<std::vector<CoflowId>> into_levels(const Table& table, std::span<const CoflowId> ordered, int levels,
                                               double last_over_first) {
  std::vector<std::vector<CoflowId>> classes;
  const auto count = static_cast<std::size_t>(levels);
  if (count == 0 || ordered.size() <= count) {
    for (const CoflowId coflow : ordered) classes.push_back({coflow});
    return classes;
  }
  const auto left = [&](CoflowId coflow) { return table.coflow(coflow).bytes - table.coflow(coflow).sent; };
  double rest = 0;
  for (const CoflowId coflow : ordered) rest += left(coflow);
  const double factor = count > 1 ? std::pow(last_over_first, 1 / static_cast<double>(count - 1)) : 1;
  // What the open level and `more` behind it have in all, over what it has.
  const auto parts = [&](std::size_t more) {
    double all = 0;
    for (std::size_t i = 0; i <= more; ++i) all = 1 + factor * all;
    return all;
  };
  double filled = 0;
  for (const CoflowId coflow : ordered) {
    const double bytes = left(coflow);
    const std::size_t more = count - classes.size();
    // A new level when the open one has its part of the rest, or nearly: half of this coflow would be too much.
    if (classes.empty() || (more > 0 && filled + bytes / 2 > (rest + filled) / parts(more))) {
      classes.emplace_back();
      filled = 0;
    }
    classes.back().push_back(coflow);
    filled += bytes;
    rest -= bytes;
  }
  return classes;
}

}  // namespace clustar::coflow
