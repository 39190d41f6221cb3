#include "paraexpress/core/plans/builders.h"

namespace clustar::paraexpress {

// Results go on the same way around as sums. Back along it they would meet the sums at each NIC: two senders to one
// receiver, each as fast as its own line, fill a switch's port, and what finds no room there is lost.
Forest ring(const Group& group) {
  const std::size_t n = group.ranks;
  Forest forest{group.ranks, group.helpers, {}};
  forest.shards.resize(n);
  for (std::size_t place = 0; place < n; ++place) {
    const Member root = group.order[place];
    Shard shard{1, root, std::vector<Member>(group.members(), kNobody), true};
    // From the one behind the root around to the root: each sum goes to the next of the order.
    for (std::size_t step = 1; step < n; ++step) {
      shard.parent[group.order[(place + step) % n]] = group.order[(place + step + 1) % n];
    }
    shard.parent[root] = root;
    forest.shards[root] = std::move(shard);
  }
  return forest;
}

}  // namespace clustar::paraexpress
