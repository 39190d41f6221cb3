#include "nccl_plugin/net/fusion.h"

#include <fmt/format.h>

#include <mutex>
#include <string>
#include <vector>

namespace clustar::nccl_plugin {
namespace {

struct Fusions {
  std::mutex mutex;
  std::weak_ptr<PluginState> owner;  // the state that has them, or had them last
  std::vector<std::string> plain;    // names of the plain devices then: members are indices of these
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

std::vector<std::string> plain_devices(const PluginState& plugin) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < plugin.device_count(); ++i) {
    const auto properties = plugin.properties(i);
    if (properties.fused.empty()) names.push_back(properties.name);
  }
  return names;
}

// What cannot be made again is forgotten, so that later ones get the indices that NCCL is told.
void fuse_again(PluginState& plugin, Fusions& fusions) {
  std::size_t made = 0;
  std::string trouble;
  if (plain_devices(plugin) != fusions.plain) trouble = "the devices are others than they were";
  while (trouble.empty() && made < fusions.members.size()) {
    const auto again = plugin.transport()->fuse(fusions.members[made]);
    if (again) {
      ++made;
    } else {
      trouble = again.error().message;
    }
  }
  if (made == fusions.members.size()) return;
  plugin.log().warn(fmt::format("{} fused device(s) that NCCL knows cannot be made again: {}; start the job again",
                                fusions.members.size() - made, trouble));
  fusions.members.resize(made);
}

// A fused device takes its members' place among PCI's devices. NCCL v2.28.9 (src/graph/topo.cc) has no other place for
// one, leaves it out, and ends init with "Could not find NET with id 0".
std::string without_place(const PluginState& plugin, std::span<const int> members) {
  if (members.size() < 2) return {};
  for (const int member : members) {
    if (member < 0 || static_cast<std::size_t>(member) >= plugin.device_count()) return {};
    const auto properties = plugin.properties(static_cast<std::size_t>(member));
    if (properties.pci_path.empty()) return properties.name;
  }
  return {};
}

}  // namespace

Result<int> fuse_devices(const std::shared_ptr<PluginState>& plugin, std::span<const int> members) {
  if (plugin->transport() == nullptr) return tl::unexpected(plugin->refusal());
  Fusions& fusions = process_fusions();
  const std::lock_guard lock(fusions.mutex);
  if (const std::string name = without_place(*plugin, members); !name.empty()) {
    return fail(ErrorCode::kInvalidUsage, name + " has no PCI path, so NCCL would find no place for a fused device");
  }
  const std::size_t before = plugin->device_count();
  auto device = plugin->transport()->fuse(members);
  if (!device || plugin->device_count() == before) return device;
  if (!owns(fusions, plugin)) {
    fusions.members.clear();
    fusions.plain = plain_devices(*plugin);
  }
  fusions.owner = plugin;
  fusions.members.emplace_back(members.begin(), members.end());
  return device;
}

bool find_device(const std::shared_ptr<PluginState>& plugin, std::size_t device) {
  if (device < plugin->device_count()) return true;
  Fusions& fusions = process_fusions();
  const std::lock_guard lock(fusions.mutex);
  if (plugin->transport() == nullptr || owns(fusions, plugin)) return device < plugin->device_count();
  if (!fusions.members.empty()) fuse_again(*plugin, fusions);
  fusions.plain = plain_devices(*plugin);
  fusions.owner = plugin;
  return device < plugin->device_count();
}

}  // namespace clustar::nccl_plugin
