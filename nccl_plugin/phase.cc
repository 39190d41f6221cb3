#include "nccl_plugin/phase.h"

#include "nccl_plugin/abi/types.h"

namespace clustar::nccl_plugin {

std::optional<Phase> phase_of(int function, std::uint32_t ranks, std::uint32_t transfers, std::uint32_t transfer) {
  using namespace nccl_abi;
  if (function != kAllReduce && function != kReduceScatter && function != kAllGather) return std::nullopt;
  if (ranks < 2 || transfer >= transfers) return std::nullopt;
  const std::uint64_t hops = ranks - 1;
  const std::uint64_t per_loop = (function == kAllReduce ? 2 : 1) * hops * kRingSlices;
  if (transfers % per_loop != 0) return std::nullopt;

  const std::uint64_t step = transfer % per_loop / kRingSlices;
  return Phase{.reducing = function != kAllGather && step < hops,
               .stage = static_cast<std::uint32_t>(step % hops),
               .loop = static_cast<std::uint32_t>(transfer / per_loop),
               .slice = transfer % kRingSlices};
}

}  // namespace clustar::nccl_plugin
