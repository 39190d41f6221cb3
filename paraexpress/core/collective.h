// What an operation does with a forest: its way up, its way down, or both.
#pragma once

#include <cstdint>

#include "paraexpress/core/plans/build.h"

namespace clustar::paraexpress {

enum class Collective : std::uint8_t {
  kAllReduce,      // up and down
  kAllGather,      // down: each rank has its shard's result already
  kReduceScatter,  // up: each rank has its shard's result then
  kBroadcast,      // down a single tree, from its root
  kPush,           // an all-reduce's way up: the roots have the result then
  kPull,           // and its way down
};
inline constexpr int kCollectives = 6;

inline constexpr bool goes_up(Collective collective) {
  return collective == Collective::kAllReduce || collective == Collective::kReduceScatter ||
         collective == Collective::kPush;
}
inline constexpr bool goes_down(Collective collective) {
  return collective != Collective::kReduceScatter && collective != Collective::kPush;
}

// Which plans a collective can go by. Where blocks belong to ranks, shard s has to be rank s's; a broadcast takes that
// shard's tree for its own (tree_of()). What is pushed stays with the roots until it is pulled, so they are ranks.
bool goes_by(Collective collective, Plan plan, const Forest& forest);

// A forest of shard `root`'s tree alone: of a plan that a broadcast can go by.
Forest tree_of(const Forest& forest, Member root);

}  // namespace clustar::paraexpress
