// Where the ranks of a job should be: packed into few regions, or spread over many.
#pragma once

#include "paraexpress/core/cost.h"

namespace clustar::paraexpress {

enum class Placement : std::uint8_t { kPack, kSpread, kEither };
const char* to_string(Placement placement);

struct PlacementHint {
  Placement placement = Placement::kEither;
  double given_s = 0;   // the best plan's time with the ranks where they are
  double packed_s = 0;  // with the roomiest regions filled one after the other
  double spread_s = 0;  // with the ranks dealt to the regions in turn
};
// kEither where the two differ by less than a twentieth. Helpers stay where they are.
PlacementHint placement_hint(const Group& group, const Network& network, std::uint64_t bytes);

// The group with its ranks moved so. Lags stay with the ranks.
Group packed(const Group& group);
Group spread(const Group& group);

}  // namespace clustar::paraexpress
