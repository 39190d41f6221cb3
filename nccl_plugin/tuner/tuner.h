// NCCL's choice of algorithm and protocol, corrected where the transport cannot carry it or the user opted in to loss.
// A pure function of the communicator, the configuration and the call: the same answer on every rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "nccl_plugin/loss/comm_registry.h"
#include "nccl_plugin/loss/policy.h"

namespace clustar::nccl_plugin {

// NCCL's cost table: floats, row by algorithm; nccl_abi::kCostIgnored = not to be taken.
struct CostTable {
  std::span<float> costs;  // algorithms * protocols
  int algorithms = 0;
  int protocols = 0;
  float* at(int algorithm, int protocol) const;  // null outside the table
};

struct TunerFacts {
  CommFacts comm;
  bool ordered_lines = false;  // the transport places 128-byte lines in order: LL128 may be used
  bool steer = true;           // CLUSTAR_TUNER, where the transport may lose
  bool by_planner = true;      // CLUSTAR_TUNER
};

// Smallest collective of `ranks` ranks whose reduce-scatter slices reach FlowTag::kMinTolerantBytes on one channel.
std::uint64_t worthwhile_bytes(std::uint32_t ranks);

// Changes `table` for one collective of `bytes` (of one rank's input, as NCCL counts): LL128 is forbidden without
// ordered lines, even when nothing else is left (NCCL then says that it has no choice, which beats wrong sums). Where
// the policy lets the collective lose and it is worthwhile, all but RING with SIMPLE is forbidden, if that is offered.
// On one node nothing is changed: NVLink orders its lines, and NCCL takes LL128 over anything else only when it is told
// to (v2.28.9 src/graph/tuning.cc). Never revives what NCCL ignores.
// An all-reduce that NCCL offers to do by CollNet is done so where the planner takes it to be faster than a ring, and
// not elsewhere unless nothing else is left; on communicators of one rank a node, where each rank knows what the
// planner said.
void tune(const TunerFacts& facts, const LossPolicy& policy, int function, std::uint64_t bytes, CostTable table);

}  // namespace clustar::nccl_plugin
