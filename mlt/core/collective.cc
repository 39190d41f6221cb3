#include "mlt/core/collective.h"

#include <limits>

#include "mlt/core/ppm.h"

namespace clustar::mlt {

std::uint64_t loss_bound(const Terms& terms) {
  using Wide = unsigned __int128;
  constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();
  if (terms.collective_bytes == 0 || terms.ranks < 2 || terms.edges < 1 || terms.edges > terms.ranks ||
      terms.tolerance_ppm > kMillion) {
    return 0;
  }
  // 20 + 64 + 32 bits.
  const Wide numerator = Wide{terms.tolerance_ppm} * terms.collective_bytes * terms.ranks;
  const Wide bound = numerator / (Wide{terms.edges} * kMillion);
  return bound > kMax ? kMax : static_cast<std::uint64_t>(bound);
}

}  // namespace clustar::mlt
