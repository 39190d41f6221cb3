// How a rank sums gradients by NCCL.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "bench/proxy/communicator.h"

namespace clustar::bench::trainer {

// Of an exchange in a GPU's memory (direct_exchange.h).
struct DirectOptions {
  proxy::Missing missing = proxy::Missing::kRescale;  // not kResidual
  double important = 0;  // the fraction of a bucket's blocks that may not be lost; 0: nothing is marked
  std::string driver{};  // of the GPU; empty: libcuda.so.1, where the loader finds it
  std::string plugin{};  // path: what tells of losses, and what is told what is important
};

struct NcclOptions {
  int channels = 1;
  std::string comm_name{};  // ncclConfig_t.commName; empty: none
  std::chrono::milliseconds join_timeout{60000};
  // How long a collective that is waited for may take; 0: as long as it does.
  std::chrono::milliseconds stall_timeout{120000};
  // How long leaving the communicator may take, and what the device still does after an abort.
  std::chrono::milliseconds close_timeout{10000};
  // All-reduces are such exchanges; otherwise NCCL's own.
  std::optional<DirectOptions> direct{};
};

}  // namespace clustar::bench::trainer
