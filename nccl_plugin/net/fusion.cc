#include "nccl_plugin/net/fusion.h"

#include <mutex>
#include <vector>

namespace clustar::nccl_plugin {
namespace {

struct Fusions {
  std::mutex mutex;
  std::weak_ptr<PluginState> owner;  // who has them, or had them last
  std::vector<std::vector<int>> members;
};

Fusions& process_fusions() {
  static Fusions fusions;
  return fusions;
}

// Compared without locking the pointer, which would be null for a state that is gone.
bool owns(const Fusions& fusions, const std::shared_ptr<PluginState>& plugin) {
  return !fusions.owner.owner_before(plugin) && !plugin.owner_before(fusions.owner);
}

}  // namespace

Result<int> fuse_devices(const std::shared_ptr<PluginState>& plugin, std::span<const int> members) {
  if (plugin->transport() == nullptr) return tl::unexpected(plugin->refusal());
  Fusions& fusions = process_fusions();
  const std::lock_guard lock(fusions.mutex);
  const std::size_t before = plugin->device_count();
  auto device = plugin->transport()->fuse(members);
  if (!device || plugin->device_count() == before) return device;
  if (!owns(fusions, plugin)) fusions.members.clear();
  fusions.owner = plugin;
  fusions.members.emplace_back(members.begin(), members.end());
  return device;
}

bool find_device(const std::shared_ptr<PluginState>& plugin, std::size_t device) {
  if (device < plugin->device_count()) return true;
  Fusions& fusions = process_fusions();
  const std::lock_guard lock(fusions.mutex);
  if (plugin->transport() == nullptr || owns(fusions, plugin)) return device < plugin->device_count();
  for (const std::vector<int>& members : fusions.members) {
    if (const auto again = plugin->transport()->fuse(members); !again) {
      plugin->log().warn("a fused device that NCCL knows cannot be made again: " + again.error().message);
      break;
    }
  }
  fusions.owner = plugin;
  return device < plugin->device_count();
}

}  // namespace clustar::nccl_plugin
