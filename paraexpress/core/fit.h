// A network's parameters from the times of a few operations: what the planner's model has to be told to give these.
#pragma once

#include <cstdint>
#include <functional>

#include "paraexpress/core/cost.h"
#include "paraexpress/core/plans/build.h"

namespace clustar::paraexpress {

// Least seconds of the slowest rank, none of them late, each as one chunk per shard.
struct Measured {
  std::uint64_t small_bytes = 64;  // so few that only messages count
  double direct_small_s = 0;       // few steps of many messages
  double ring_small_s = 0;         // many steps of few messages
  std::uint64_t large_bytes = 256 << 10;
  double direct_large_s = 0;
  // The next three tell headers from a host's work; 0: not measured. A server's small messages meet at a NIC alone,
  // those of direct_small_s in the uplinks, too.
  double server_small_s = 0;
  std::uint64_t middle_bytes = 0;  // so that messages and bytes count alike: middle_bytes()
  double direct_middle_s = 0;
};
// The size for direct_middle_s, from the others.
std::uint64_t middle_bytes(const Measured& measured);
// All of it by `seconds`, of an all-reduce of so many bytes; `sizes` says how many.
Measured measured_by(const std::function<double(Plan plan, std::uint64_t bytes)>& seconds, const Measured& sizes = {});

// Latency and a host's work per message from the small ones, the NIC's rate from what the large one takes beyond: the
// uplinks' share in it is the region map's. Headers from what work cannot explain, since work hides behind the wire and
// is no uplink's. What is left of `base`: its limits of chunks.
Network fit(const Group& group, const Measured& measured, const Network& base);

}  // namespace clustar::paraexpress
