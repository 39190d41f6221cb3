#include "coflow/control/core/deadlines.h"

#include <algorithm>
#include <numeric>
#include <tuple>

namespace clustar::coflow::control {

std::vector<bool> promise(std::span<const DeadlineClaim> claims, std::size_t ports) {
  std::vector<std::size_t> order(claims.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return std::tuple(!claims[a].promised, claims[a].came, a) < std::tuple(!claims[b].promised, claims[b].came, b);
  });
  std::vector<double> taken(ports, 0);
  std::vector<bool> kept(claims.size(), false);
  for (const std::size_t i : order) {
    const DeadlineClaim& one = claims[i];
    const auto fits = [&](const BssiItem::Load& load) {
      return taken[load.port] + load.bytes / one.within <= kMostPromised;
    };
    kept[i] = std::all_of(one.loads.begin(), one.loads.end(), fits);
    if (!kept[i]) continue;
    for (const BssiItem::Load& load : one.loads) taken[load.port] += load.bytes / one.within;
  }
  return kept;
}

}  // namespace clustar::coflow::control
