// How the ranks sum their gradients, and what becomes of what the transport may lose of them.
#pragma once

#include <cstdint>

#include "bench/proxy/communicator.h"

namespace clustar::bench::trainer {

enum class AllReduce : std::uint8_t {
  kRing,
  kAllToAll,  // every rank sends each other rank the part that this one adds up; the sums go round by all-gather
};

// What runs the collectives: bench/proxy's driver of net plugins, NCCL itself, our own engine, or a parameter server.
enum class CollectiveKind : std::uint8_t { kProxy, kNccl, kParaexpress, kPs };

// What kPs is, wherever its results are shown.
inline constexpr const char* kPsLabel =
    "baseline of 2018: one parameter server, one TCP connection per worker, serialising copies, no overlap, the "
    "kernel's default RTO";

struct ExchangeOptions {
  AllReduce all_reduce = AllReduce::kRing;
  // Of kAllToAll. kResidual: what was lost of a rank's gradient is added to its next step's gradient.
  proxy::Missing missing = proxy::Missing::kRescale;
};

const char* to_string(CollectiveKind kind);  // "proxy", "nccl", "paraexpress", "ps"
bool opens_plugin(CollectiveKind kind);
const char* to_string(AllReduce all_reduce);    // "ring", "all-to-all"
const char* to_string(proxy::Missing missing);  // "zero", "rescale", "residual"

}  // namespace clustar::bench::trainer
