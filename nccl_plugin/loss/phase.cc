#include "nccl_plugin/loss/phase.h"

#include <limits>

#include "nccl_plugin/abi/types.h"

namespace clustar::nccl_plugin {

std::uint32_t transfers_per_loop(int function, std::uint32_t ranks) {
  using namespace nccl_abi;
  if (function != kAllReduce && function != kReduceScatter && function != kAllGather) return 0;
  constexpr std::uint32_t kMost = std::numeric_limits<std::uint32_t>::max() / (2 * kRingSlices);
  if (ranks < 2 || ranks > kMost) return 0;
  return (function == kAllReduce ? 2 : 1) * (ranks - 1) * kRingSlices;
}

std::optional<Phase> phase_of(int function, std::uint32_t ranks, std::uint32_t transfers, std::uint32_t transfer) {
  using namespace nccl_abi;
  if (transfer >= transfers) return std::nullopt;
  const std::uint32_t hops = ranks - 1;
  const std::uint32_t per_loop = transfers_per_loop(function, ranks);
  if (per_loop == 0 || transfers % per_loop != 0) return std::nullopt;

  const std::uint32_t step = transfer % per_loop / kRingSlices;
  return Phase{.reducing = function != kAllGather && step < hops,
               .stage = step % hops,
               .loop = transfer / per_loop,
               .slice = transfer % kRingSlices};
}

}  // namespace clustar::nccl_plugin
