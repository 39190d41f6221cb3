// What a collective operation sends from port to port, where each port serves several ranks.
#pragma once

#include <cstdint>
#include <vector>

#include "coflow/core/table.h"

namespace clustar::bench::coflow {

enum class Collective : std::uint8_t { kAllReduce, kAllGather, kReduceScatter, kBroadcast, kAllToAll };

// All groups of a kind: `size` ranks each, `stride` apart, within blocks of size times stride ranks, which divide the
// world. Tensor parallelism has stride 1, what lies around it the tensor-parallel size.
struct Groups {
  std::size_t world = 1;
  std::size_t size = 1;
  std::size_t stride = 1;
};

// Ranks are on ports in their order.
struct Layout {
  std::size_t ranks_per_port = 1;
  std::size_t first_port = 0;
  std::size_t ports_of(std::size_t world) const { return (world + ranks_per_port - 1) / ranks_per_port; }
};

// Of an operation of one byte in all (NCCL's count: the result of a gather, the input of a scatter) that all groups do
// together, by source and destination. Rings in the order of ranks: an edge carries 2(n-1)/n for an all-reduce, (n-1)/n
// for a gather or scatter, and of a broadcast, a chain from the group's `root`-th rank, all. An all-to-all sends 1/n to
// each other rank. What stays within a port is left out, what goes between the same two ports is one flow.
std::vector<clustar::coflow::FlowSpec> flows_of(Collective collective, const Groups& groups, const Layout& layout,
                                                std::size_t root = 0);
// At most. Making them takes as many steps, or one for each rank of the world if that is more: a ring goes from rank to
// rank even where a few ports have them all.
std::size_t flow_bound(Collective collective, const Groups& groups, const Layout& layout);

}  // namespace clustar::bench::coflow
