#include "paraexpress/core/placement.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace clustar::paraexpress {
namespace {

// Hosts that no helper has, by region.
std::vector<std::uint32_t> room(const Group& group) {
  std::vector<std::uint32_t> free;
  for (const Region& region : group.regions.regions) free.push_back(region.hosts);
  for (Member helper = group.ranks; helper < group.members(); ++helper) --free[group.region_of(helper)];
  return free;
}

Group moved(const Group& group, const std::vector<std::uint32_t>& region_of_rank) {
  RegionMap map = group.regions;
  std::copy(region_of_rank.begin(), region_of_rank.end(), map.region_of.begin());
  return make_group(group.ranks, group.helpers, std::move(map));
}

}  // namespace

const char* to_string(Placement placement) {
  switch (placement) {
    case Placement::kPack: return "pack";
    case Placement::kSpread: return "spread";
    case Placement::kEither: return "either";
  }
  return "?";
}

Group packed(const Group& group) {
  const auto free = room(group);
  std::vector<std::uint32_t> roomiest(free.size());
  std::iota(roomiest.begin(), roomiest.end(), 0);
  std::sort(roomiest.begin(), roomiest.end(), [&](std::uint32_t a, std::uint32_t b) {
    return free[a] != free[b] ? free[a] > free[b] : a < b;  // the same on all ranks
  });
  std::vector<std::uint32_t> region_of_rank;
  for (const std::uint32_t region : roomiest) {
    region_of_rank.insert(region_of_rank.end(),
                          std::min<std::size_t>(free[region], group.ranks - region_of_rank.size()), region);
  }
  return moved(group, region_of_rank);
}

Group spread(const Group& group) {
  auto free = room(group);
  std::vector<std::uint32_t> region_of_rank;
  while (region_of_rank.size() < group.ranks) {
    for (std::uint32_t region = 0; region < free.size() && region_of_rank.size() < group.ranks; ++region) {
      if (free[region] == 0) continue;
      --free[region];
      region_of_rank.push_back(region);
    }
  }
  return moved(group, region_of_rank);
}

PlacementAdvisor::PlacementAdvisor(const Group& group, const Network& network)
    : given_(group, network), packed_(packed(group), network), spread_(spread(group), network) {}

PlacementHint PlacementAdvisor::hint(std::uint64_t bytes) const {
  const auto time = [&](const Planner& planner) { return planner.best(bytes).cost.seconds; };
  PlacementHint hint{Placement::kEither, time(given_), time(packed_), time(spread_)};
  if (hint.packed_s < 0.95 * hint.spread_s) hint.placement = Placement::kPack;
  if (hint.spread_s < 0.95 * hint.packed_s) hint.placement = Placement::kSpread;
  return hint;
}

}  // namespace clustar::paraexpress
