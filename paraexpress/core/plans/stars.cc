#include <algorithm>

#include "paraexpress/core/plans/builders.h"

namespace clustar::paraexpress {
namespace {

Shard star(const Group& group, Member root, std::uint64_t weight) {
  Shard shard{weight, root, std::vector<Member>(group.members(), kNobody)};
  std::fill_n(shard.parent.begin(), group.ranks, root);
  shard.parent[root] = root;
  return shard;
}

}  // namespace

Forest direct(const Group& group) {
  Forest forest{group.ranks, group.helpers, {}};
  for (Member root = 0; root < group.ranks; ++root) forest.shards.push_back(star(group, root, 1));
  return forest;
}

Forest sharded(const Group& group) {
  // A single rank has nothing to send, and the formula no parts.
  if (group.ranks == 1) return direct(group);
  const std::uint64_t n = group.ranks, k = std::min(group.helpers, group.ranks);
  Forest forest{group.ranks, group.helpers, {}};
  for (Member root = 0; root < group.ranks && k < n; ++root) forest.shards.push_back(star(group, root, n - k));
  for (Member helper = 0; helper < group.helpers; ++helper) {
    forest.shards.push_back(star(group, group.ranks + helper, 2 * (n - 1)));
  }
  return forest;
}

Forest server(const Group& group) {
  return {group.ranks, group.helpers, {star(group, group.helpers > 0 ? group.ranks : group.order.front(), 1)}};
}

}  // namespace clustar::paraexpress
