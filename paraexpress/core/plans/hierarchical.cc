#include "paraexpress/core/plans/builders.h"

namespace clustar::paraexpress {

std::vector<std::vector<Member>> regions_with_ranks(const Group& group) {
  std::vector<std::vector<Member>> regions;
  for (const auto& members : members_by_region(group.regions)) {
    std::vector<Member> ranks;
    for (const Member member : members) {
      if (member < group.ranks) ranks.push_back(member);
    }
    if (!ranks.empty()) regions.push_back(std::move(ranks));
  }
  return regions;
}

Forest hierarchical(const Group& group) {
  const auto regions = regions_with_ranks(group);
  Forest forest{group.ranks, group.helpers, {}};
  forest.shards.resize(group.ranks);
  std::size_t turn = 0;
  for (const auto& home : regions) {
    for (const Member root : home) {
      Shard shard{1, root, std::vector<Member>(group.members(), kNobody)};
      for (const auto& region : regions) {
        const Member aggregator = &region == &home ? root : region[turn % region.size()];
        for (const Member member : region) shard.parent[member] = aggregator;
        shard.parent[aggregator] = root;
      }
      forest.shards[root] = std::move(shard);
      ++turn;
    }
  }
  return forest;
}

}  // namespace clustar::paraexpress
