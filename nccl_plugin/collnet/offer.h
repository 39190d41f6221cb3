// Whether NCCL is offered a collective network in this process, and by which devices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "nccl_plugin/net/plugin_state.h"
#include "transport/api/transport.h"

namespace clustar::nccl_plugin {

// It was asked for, and NCCL may give it GPU memory: what the net plugin reaches. As one node of NCCL's topology stands
// for both networks, one that takes none would take GPUDirect from all traffic.
bool collnet_meets_gpu_memory(const PluginState& plugin);
// The same as long as the state lives.
bool offers_collnet(const PluginState& plugin);
// In one line for people, why or why not. Empty: nobody asked.
std::string collnet_summary(const PluginState& plugin);
// Of its connections. They lose nothing, whatever the communicator opted in to: no ledger of losses knows of them.
// `rank`: -1 where it is not known yet; `comm_id`: 0 likewise.
transport::ChannelOptions collnet_channel(const PluginState& plugin, std::uint64_t comm_id, int rank);

}  // namespace clustar::nccl_plugin
