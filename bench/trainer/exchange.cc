#include "bench/trainer/exchange.h"

namespace clustar::bench::trainer {

const char* to_string(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kProxy: return "proxy";
    case CollectiveKind::kNccl: return "nccl";
    case CollectiveKind::kParaexpress: return "paraexpress";
    case CollectiveKind::kPs: return "ps";
  }
  return "?";
}

bool opens_plugin(CollectiveKind kind) { return kind == CollectiveKind::kProxy || kind == CollectiveKind::kNccl; }

const char* to_string(AllReduce all_reduce) { return all_reduce == AllReduce::kRing ? "ring" : "all-to-all"; }

const char* to_string(proxy::Missing missing) {
  switch (missing) {
    case proxy::Missing::kZero: return "zero";
    case proxy::Missing::kRescale: return "rescale";
    case proxy::Missing::kResidual: return "residual";
  }
  return "?";
}

}  // namespace clustar::bench::trainer
