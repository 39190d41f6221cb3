#include "transport/verbs/device_memory.h"

#include <algorithm>
#include <vector>

namespace clustar::transport::verbs {

DeviceMemory find_device_memory(std::span<const Port> ports, const Settings& settings) {
  std::vector<const io::verbs::ProtectionDomain*> domains;
  for (const Port& port : ports) domains.push_back(&port.domain);
  const bool software = std::ranges::any_of(ports, [](const Port& port) { return port.info.pci_path.empty(); });
  return io::verbs::find_device_memory(domains, ports.front().info.device, software,
                                       {settings.offer_gpu_memory, settings.emulate_gpu});
}

}  // namespace clustar::transport::verbs
