// NCCL's virtual devices: several of ours as one.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "nccl_plugin/net/plugin_state.h"

namespace clustar::nccl_plugin {

// Index of the device that sends over all of `members`. NCCL calls under a lock of its own, one at a time.
Result<int> fuse_devices(const std::shared_ptr<PluginState>& plugin, std::span<const int> members);

// NCCL remembers virtual devices as long as it keeps the library, and the state may end meanwhile, with the last
// communicator (NCCL_NET_PLUGIN_REF_COUNT=1; v2.28.9 src/graph/topo.cc ncclTopoProcessNet makes them once). So what an
// earlier state fused is fused again when NCCL asks for a device that is not there; not before, because where NCCL
// starts over, too, devices() is to give the plain ones. Only while the plain ones have the same names in the same
// order; where there are more of them now, an index that was a fused device's may be a plain one's, which nothing here
// can tell. False: there is no such device.
bool find_device(const std::shared_ptr<PluginState>& plugin, std::size_t device);

}  // namespace clustar::nccl_plugin
