// One builder per plan; build.h is what others use. Where every rank is a root, shard s is rank s's: the half up the
// trees is a reduce-scatter then, the half down an all-gather.
#pragma once

#include <vector>

#include "paraexpress/core/forest.h"
#include "paraexpress/core/group.h"

namespace clustar::paraexpress {

// stars.cc
Forest direct(const Group& group);
// Shares by BytePS (Jiang et al., OSDI 2020): with n ranks and k helpers each helper has 2(n-1) and each rank n-k of
// n^2 + kn - 2k parts, which loads all NICs alike. From k = n on ranks have nothing.
Forest sharded(const Group& group);
Forest server(const Group& group);
// ring.cc
Forest ring(const Group& group);
// double_tree.cc
Forest double_tree(const Group& group);
// hierarchical.cc, after RAT (Wan et al., APNet 2020): in each shard one aggregator per region, and each rank is one as
// often as the others of its region.
Forest hierarchical(const Group& group);
// The ranks of each region that has some.
std::vector<std::vector<Member>> regions_with_ranks(const Group& group);

}  // namespace clustar::paraexpress
