// Which member is in which region, and how narrow the regions' uplinks are. A region is a set of hosts that reach each
// other at full speed (a rack, a leaf switch); what leaves it shares the uplink.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "paraexpress/core/forest.h"
#include "transport/base/result.h"

namespace clustar::paraexpress {

inline constexpr double kMostOversubscription = 1000;

struct Region {
  std::string name{};
  std::uint32_t hosts = 0;      // that it has room for; its uplink is as wide as these / oversubscription
  double oversubscription = 1;  // 1: the uplink never is the bottleneck
};

struct RegionMap {
  std::vector<Region> regions{};
  std::vector<std::uint32_t> region_of{};  // by member
};

// All in one region.
RegionMap one_region(std::uint32_t members);
// Regions of `size` members by their number; the last may have fewer.
RegionMap equal_regions(std::uint32_t members, std::uint32_t size, double oversubscription);

// The text of a file, a region a line, '#' begins a comment:
//   region0 ranks=0-7 helpers=0,2 hosts=16 oversubscription=4
// `hosts` is by default the number of its members. Each rank and helper is to be in one region. Errors: "LINE: what is
// wrong; allowed: ...".
Result<RegionMap> parse_region_map(std::string_view text, std::uint32_t ranks, std::uint32_t helpers);

// Members by region, then by number: the order in which a ring crosses each uplink once.
std::vector<std::vector<Member>> members_by_region(const RegionMap& map);

}  // namespace clustar::paraexpress
