#include "nccl_plugin/tuner/tuner.h"

#include <bit>
#include <limits>

#include "nccl_plugin/abi/tuner.h"
#include "nccl_plugin/abi/types.h"
#include "nccl_plugin/loss/phase.h"

namespace clustar::nccl_plugin {
namespace {

using namespace nccl_abi;

// Whether the policy lets a collective of floats lose once warm-up is over. A tuner knows neither datatype nor ordinal,
// and the phases of the model pass: the choice must not change with them.
bool may_lose(const TunerFacts& facts, const LossPolicy& policy, int function, std::uint64_t bytes) {
  const CollectiveFacts collective{.function = function,
                                   .datatype = kFloat32,
                                   .algorithm = kRing,
                                   .protocol = kSimple,
                                   .bytes = bytes,
                                   .captured = false,
                                   .ordinal = std::numeric_limits<std::uint64_t>::max()};
  return policy.judge(facts.comm, collective, false).reason == Reason::kLossy;
}

bool is_collnet(int algorithm) { return algorithm == kCollnetDirect || algorithm == kCollnetChain; }

void choose_collnet(const TunerFacts& facts, int function, std::uint64_t bytes, const CostTable& table) {
  const bool knows = facts.by_planner && facts.comm.collnet_wins && facts.comm.ranks == facts.comm.nodes;
  if (!knows || function != nccl_abi::kAllReduce || bytes == 0) return;
  const bool wins = ((*facts.comm.collnet_wins >> (std::bit_width(bytes) - 1)) & 1) != 0;
  bool others = false;
  for (int algorithm = 0; algorithm < table.algorithms; ++algorithm) {
    for (int protocol = 0; protocol < table.protocols; ++protocol) {
      const float* const cost = table.at(algorithm, protocol);
      others = others || (!is_collnet(algorithm) && cost != nullptr && *cost >= 0);
    }
  }
  for (const int algorithm : {int{kCollnetDirect}, int{kCollnetChain}}) {
    float* const cost = table.at(algorithm, kSimple);
    if (cost == nullptr || *cost < 0) continue;
    if (wins) *cost = 0;
    if (!wins && others) *cost = kCostIgnored;
  }
}

}  // namespace

float* CostTable::at(int algorithm, int protocol) const {
  if (algorithm < 0 || algorithm >= algorithms || protocol < 0 || protocol >= protocols) return nullptr;
  const std::size_t index =
      static_cast<std::size_t>(algorithm) * static_cast<std::size_t>(protocols) + static_cast<std::size_t>(protocol);
  return index < costs.size() ? &costs[index] : nullptr;
}

// NCCL cuts a rank's share of a loop into kRingSlices.
std::uint64_t worthwhile_bytes(std::uint32_t ranks) {
  return std::uint64_t{ranks} * kRingSlices * transport::FlowTag::kMinTolerantBytes;
}

void tune(const TunerFacts& facts, const LossPolicy& policy, int function, std::uint64_t bytes, CostTable table) {
  if (facts.comm.nodes == 1) return;
  const float* const wanted = table.at(kRing, kSimple);
  const bool steer = facts.steer && wanted != nullptr && *wanted >= 0 && bytes >= worthwhile_bytes(facts.comm.ranks) &&
                     may_lose(facts, policy, function, bytes);
  if (!steer) choose_collnet(facts, function, bytes, table);
  for (int algorithm = 0; algorithm < table.algorithms; ++algorithm) {
    for (int protocol = 0; protocol < table.protocols; ++protocol) {
      float* const cost = table.at(algorithm, protocol);
      const bool forbidden = (protocol == kLL128 && !facts.ordered_lines) || (steer && cost != wanted);
      if (forbidden && cost != nullptr) *cost = kCostIgnored;
    }
  }
}

}  // namespace clustar::nccl_plugin
