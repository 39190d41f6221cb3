// Where the ranks of a job should be: packed into few regions, or spread over many.
#pragma once

#include "paraexpress/core/planner.h"

namespace clustar::paraexpress {

enum class Placement : std::uint8_t { kPack, kSpread, kEither };
const char* to_string(Placement placement);

struct PlacementHint {
  Placement placement = Placement::kEither;
  double given_s = 0;   // the best plan's time with the ranks where they are
  double packed_s = 0;  // with the roomiest regions filled one after the other
  double spread_s = 0;  // with the ranks dealt to the regions in turn
};
// The plans of a group for its ranks as they are, packed and spread, built once for any number of sizes. Helpers stay
// where they are.
class PlacementAdvisor {
 public:
  PlacementAdvisor(const Group& group, const Network& network);
  // kEither where packed and spread differ by less than a twentieth.
  PlacementHint hint(std::uint64_t bytes) const;

 private:
  Planner given_, packed_, spread_;
};

// The group with its ranks moved so. Lags stay with the ranks.
Group packed(const Group& group);
Group spread(const Group& group);

}  // namespace clustar::paraexpress
