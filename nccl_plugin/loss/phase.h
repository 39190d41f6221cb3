// Which step of a ring a network transfer is. Source: NCCL v2.28.9 src/enqueue.cc calcCollChunking (steps per loop),
// src/include/collectives.h (chunk and slice steps), src/device/all_reduce.h runRing (order of the primitives).
// Holds for RING and SIMPLE only, where a chunk is kRingSlices transfers.
#pragma once

#include <cstdint>
#include <optional>

namespace clustar::nccl_plugin {

inline constexpr std::uint32_t kRingSlices = 2;

struct Phase {
  bool reducing = false;    // a reduce-scatter step: what is lost is missing from one chunk, alike on all ranks
  std::uint32_t stage = 0;  // k, 0 .. ranks - 2 while reducing; 0 .. ranks - 2 while gathering, too
  std::uint32_t loop = 0;
  std::uint32_t slice = 0;  // 0 .. kRingSlices - 1

  bool operator==(const Phase&) const = default;
};

// Transfers of one loop on a channel: 0 for a function without phases or ranks < 2.
std::uint32_t transfers_per_loop(int function, std::uint32_t ranks);

// Phase of transfer `transfer` (t, from 0) of `transfers` that one channel's proxy operation makes, send side and
// receive side alike, in a collective `function` (ncclFunc_t) over `ranks` ranks. nullopt: the function has no phases
// here (all but all-reduce, reduce-scatter, all-gather), ranks < 2, t outside the operation, or transfers that are not
// a whole number of loops, so that the formula does not describe this operation.
std::optional<Phase> phase_of(int function, std::uint32_t ranks, std::uint32_t transfers, std::uint32_t transfer);

}  // namespace clustar::nccl_plugin
