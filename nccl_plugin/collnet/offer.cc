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

// Null: none reaches GPU memory.
const transport::DeviceProperties* reaches_gpus(const PluginState& plugin) {
  const auto devices = plugin.transport()->devices();
  const auto found =
      std::ranges::find_if(devices, [](const auto& device) { return device.memory_kinds != gdr::kHostOnly; });
  return found == devices.end() ? nullptr : &*found;
}

}  // namespace

bool collnet_meets_gpu_memory(const PluginState& plugin) {
  return asked_for(plugin) && plugin.transport() != nullptr && reaches_gpus(plugin) != nullptr;
}

bool offers_collnet(const PluginState& plugin) {
  const auto* copies = plugin.gpu_copies();
  return asked_for(plugin) && plugin.transport() != nullptr && (copies == nullptr || copies->has_value());
}

std::string collnet_summary(const PluginState& plugin) {
  if (!asked_for(plugin) || plugin.transport() == nullptr) return {};
  const auto* copies = plugin.gpu_copies();
  if (copies != nullptr && !*copies) {
    const auto* device = reaches_gpus(plugin);
    return fmt::format(
        "CollNet is not offered: {} reaches GPU memory ({}), and the sums, which are made in host memory, do not: {}; "
        "CLUSTAR_GDR=off keeps NCCL's buffers in host memory",
        device->name, device->gdr, copies->error().message);
  }
  return fmt::format(
      "CollNet is offered, by ParaExpress: {}, in host memory{}; NCCL takes it where "
      "NCCL_COLLNET_ENABLE=1 and there are two nodes or more",
      offered_reductions(), copies == nullptr ? "" : ", to and from which GPU memory is copied");
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
