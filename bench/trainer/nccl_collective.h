// NCCL's own collectives, on a GPU or on the emulated device of tests/nccl_host. Gradients of the host are copied to
// the device and back on the stream of the collective; those of a device stay there.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "bench/proxy/bootstrap.h"
#include "bench/trainer/collective.h"
#include "bench/trainer/nccl_library.h"
#include "transport/base/result.h"

namespace clustar::bench::trainer {

struct NcclOptions {
  int channels = 1;
  std::string comm_name{};  // ncclConfig_t.commName; empty: none
  std::chrono::milliseconds join_timeout{60000};
  // How long a collective that is waited for may take; 0: as long as it does.
  std::chrono::milliseconds stall_timeout{120000};
  // How long leaving the communicator may take, and what the device still does after an abort.
  std::chrono::milliseconds close_timeout{10000};
};

// The environment that NCCL reads, as far as the user left it open; before this process's first call of NCCL. `plugin`:
// path of the net plugin, which is set in any case, as is NCCL_NET, `plugin_name`: without its plugin NCCL would fall
// back to another network and say nothing. Each rank is a host of its own, so that its gradients go over that network.
void set_nccl_environment(int rank, const std::string& root, const std::string& plugin, const std::string& plugin_name,
                          bool emulated);

// Device of rank r: r modulo their number. All ranks call it; `bootstrap` is used during the call only.
Result<std::unique_ptr<Collective>> create_nccl_collective(const NcclLibrary& library, proxy::Bootstrap& bootstrap,
                                                           const NcclOptions& options);

}  // namespace clustar::bench::trainer
