// An all-reduce by a forest, message by message in simulated time, to judge the planner's model by something that knows
// more: rates are max-min fair over NICs and uplinks, a host sends a few messages at a time, of those that are ready
// the lowest chunk's first, works for each message it sends or receives, and nothing waits for a step of others to end.
#pragma once

#include <cstdint>

#include "paraexpress/core/cost.h"

namespace clustar::bench::paraexpress {

struct SimulationOptions {
  std::uint32_t chunks = 1;  // per shard
  std::uint32_t window = 8;  // messages of a host that are on the wire at once
  // Events closer together than this part of the shortest time in which one message can follow another count as one.
  double grain = 0.05;
};

struct Simulation {
  double seconds = 0;
  std::uint64_t messages = 0;
  double busiest_uplink_bytes = 0;  // per direction
};

// All are to be consistent.
Simulation simulate(const clustar::paraexpress::Forest& forest, const clustar::paraexpress::Group& group,
                    const clustar::paraexpress::Network& network, std::uint64_t bytes,
                    const SimulationOptions& options);

}  // namespace clustar::bench::paraexpress
