// A network's parameters from the times of a few operations: what the planner's model has to be told to give these.
#pragma once

#include <cstdint>

#include "paraexpress/core/cost.h"

namespace clustar::paraexpress {

// Least seconds of the slowest rank, none of them late, each as one chunk per shard.
struct Measured {
  std::uint64_t small_bytes = 64;  // so few that only messages count
  double direct_small_s = 0;       // few steps of many messages
  double ring_small_s = 0;         // many steps of few messages
  std::uint64_t large_bytes = 256 << 10;
  double direct_large_s = 0;
};
// Latency and a host's work per message from the small ones, the NIC's rate from what the large one takes beyond: the
// uplinks' share in it is the region map's. What is left of `base`: its limits of chunks.
Network fit(const Group& group, const Measured& measured, const Network& base);

}  // namespace clustar::paraexpress
