#include "paraexpress/core/collective.h"

#include <algorithm>

namespace clustar::paraexpress {

bool goes_by(Collective collective, Plan plan, const Forest& forest) {
  switch (collective) {
    case Collective::kAllReduce: return true;
    case Collective::kAllGather:
    case Collective::kReduceScatter:
    case Collective::kBroadcast: return plan == Plan::kDirect || plan == Plan::kRing || plan == Plan::kHierarchical;
    case Collective::kPush:
    case Collective::kPull:
      return std::all_of(forest.shards.begin(), forest.shards.end(), [&](const Shard& shard) {
        return std::all_of(shard.parent.begin() + forest.ranks, shard.parent.end(),
                           [](Member parent) { return parent == kNobody; });
      });
  }
  return false;
}

Forest tree_of(const Forest& forest, Member root) { return {forest.ranks, forest.helpers, {forest.shards[root]}}; }

}  // namespace clustar::paraexpress
