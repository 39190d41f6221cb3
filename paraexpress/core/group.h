// Who aggregates: ranks, helpers, where they are, and in which order rings and trees go through the ranks.
#pragma once

#include <string>
#include <vector>

#include "paraexpress/core/region_map.h"

namespace clustar::paraexpress {

struct Group {
  std::uint32_t ranks = 0;
  std::uint32_t helpers = 0;
  RegionMap regions{};
  std::vector<Member> order{};  // of all ranks, each once

  std::uint32_t members() const { return ranks + helpers; }
  std::uint32_t region_of(Member member) const { return regions.region_of[member]; }
};

// With the ranks in order of their regions.
Group make_group(std::uint32_t ranks, std::uint32_t helpers, RegionMap regions);
// "" or what is wrong.
std::string inconsistency(const Group& group);

}  // namespace clustar::paraexpress
