#include "nccl_plugin/collnet/offer.h"

#include <fmt/format.h>

#include <algorithm>

#include "gdr/memory.h"
#include "nccl_plugin/collnet/reductions.h"
#include "nccl_plugin/collnet/settings.h"
#include "nccl_plugin/process.h"
#include "transport/api/settings.h"

namespace clustar::nccl_plugin {
namespace {

bool asked_for(const PluginState& plugin) { return plugin.config().get<CollNetSettings>().offered == "on"; }

// What the net plugin reaches and the sums do not: NCCL would take GPUDirect from all its traffic, as one node of its
// topology stands for both.
const transport::DeviceProperties* beyond_the_sums(const PluginState& plugin) {
  const auto devices = plugin.transport()->devices();
  const auto found =
      std::ranges::find_if(devices, [](const auto& device) { return device.memory_kinds != gdr::kHostOnly; });
  return found == devices.end() ? nullptr : &*found;
}

}  // namespace

bool offers_collnet(const PluginState& plugin) {
  return asked_for(plugin) && plugin.transport() != nullptr && beyond_the_sums(plugin) == nullptr;
}

std::string collnet_summary(const PluginState& plugin) {
  if (!asked_for(plugin) || plugin.transport() == nullptr) return {};
  if (const auto* device = beyond_the_sums(plugin)) {
    return fmt::format(
        "CollNet is not offered: its sums are made in host memory, and {} reaches GPU memory ({}), which NCCL would "
        "then use for nothing; CLUSTAR_GDR=off keeps NCCL's buffers in host memory",
        device->name, device->gdr);
  }
  return fmt::format(
      "CollNet is offered, by ParaExpress: {}, in host memory; NCCL takes it where "
      "NCCL_COLLNET_ENABLE=1 and there are two nodes or more",
      offered_reductions());
}

transport::ChannelOptions collnet_channel(const PluginState& plugin, std::uint64_t comm_id, int rank) {
  transport::ChannelOptions channel;
  channel.comm_id = comm_id;
  if (comm_id != 0) {
    if (const auto facts = process_registry().find(comm_id)) channel.traffic_class = facts->traffic_class;
  }
  channel.rank = rank;
  channel.job = static_cast<std::uint32_t>(plugin.config().get<SendOrderSettings>().job);
  channel.config = plugin.config().shared_digest();
  channel.config_names = plugin.shared_names();
  return channel;
}

}  // namespace clustar::nccl_plugin
