#include "coflow/core/levels.h"

namespace clustar::coflow {

std::vector<std::vector<CoflowId>> into_levels(const Table& table, std::span<const CoflowId> ordered, int levels) {
  std::vector<std::vector<CoflowId>> classes;
  const auto count = static_cast<std::size_t>(levels);
  if (count == 0 || ordered.size() <= count) {
    for (const CoflowId coflow : ordered) classes.push_back({coflow});
    return classes;
  }
  const auto left = [&](CoflowId coflow) { return table.coflow(coflow).bytes - table.coflow(coflow).sent; };
  double rest = 0;
  for (const CoflowId coflow : ordered) rest += left(coflow);
  double filled = 0;
  for (std::size_t i = 0; i < ordered.size(); ++i) {
    const double bytes = left(ordered[i]);
    const std::size_t more = count - classes.size();  // levels behind the open one
    // A new level when the open one has its part of the rest, or nearly: half of this coflow would be too much.
    if (classes.empty() || (more > 0 && filled + bytes / 2 > (rest + filled) / static_cast<double>(more + 1))) {
      classes.emplace_back();
      filled = 0;
    }
    classes.back().push_back(ordered[i]);
    filled += bytes;
    rest -= bytes;
  }
  return classes;
}

}  // namespace clustar::coflow
