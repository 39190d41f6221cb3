#include "paraexpress/core/group.h"

#include <fmt/format.h>

#include <utility>

namespace clustar::paraexpress {

Group make_group(std::uint32_t ranks, std::uint32_t helpers, RegionMap regions) {
  Group group{ranks, helpers, std::move(regions), {}};
  for (const auto& members : members_by_region(group.regions)) {
    for (const Member member : members) {
      if (member < ranks) group.order.push_back(member);
    }
  }
  return group;
}

std::string inconsistency(const Group& group) {
  if (group.ranks == 0) return "no rank";
  if (group.ranks > kMostMembers || group.helpers > kMostMembers)
    return fmt::format("more than {} ranks or helpers", kMostMembers);
  if (group.regions.region_of.size() != group.members()) return "not every member is in a region";
  std::vector<std::uint32_t> members(group.regions.regions.size(), 0);
  for (const std::uint32_t region : group.regions.region_of) {
    if (region >= members.size()) return "a member is in a region that is not there";
    ++members[region];
  }
  for (std::size_t i = 0; i < members.size(); ++i) {
    const Region& region = group.regions.regions[i];
    if (region.hosts < members[i]) return fmt::format("region {} has more members than hosts", region.name);
    if (!(region.oversubscription >= 1)) return fmt::format("region {}'s oversubscription is below 1", region.name);
  }
  std::vector<bool> seen(group.ranks, false);
  for (const Member member : group.order) {
    if (member >= group.ranks || seen[member]) return "the order has a member twice, or one that is no rank";
    seen[member] = true;
  }
  return group.order.size() == group.ranks ? std::string() : "the order lacks ranks";
}

}  // namespace clustar::paraexpress
