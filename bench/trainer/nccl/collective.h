// NCCL's own collectives, on a GPU or on the emulated device of tests/nccl_host, or exchanges by its sends and
// receives. Gradients of the host are copied to the device and back on the stream of the collective; those of a device
// stay there.
#pragma once

#include <memory>
#include <string>

#include "bench/proxy/bootstrap.h"
#include "bench/trainer/collective.h"
#include "bench/trainer/nccl/library.h"
#include "bench/trainer/nccl/options.h"
#include "transport/base/result.h"

namespace clustar::bench::trainer {

// The environment that NCCL reads, as far as the user left it open; before this process's first call of NCCL. `plugin`:
// path of the net plugin, which is set in any case, as is NCCL_NET, `plugin_name`: without its plugin NCCL would fall
// back to another network and say nothing. Each rank is a host of its own, so that its gradients go over that network.
// `direct`: all-reduces are DirectExchanges, for which a send takes one channel and chunks of the usual size, so that
// it is known which of its bytes the plugin tells of; in all communicators of this process.
void set_nccl_environment(int rank, const std::string& root, const std::string& plugin, const std::string& plugin_name,
                          bool emulated, bool direct);

// Device of rank r: r modulo their number. All ranks call it; `bootstrap` is used during the call only.
Result<std::unique_ptr<Collective>> create_nccl_collective(const NcclLibrary& library, proxy::Bootstrap& bootstrap,
                                                           const NcclOptions& options);

}  // namespace clustar::bench::trainer
