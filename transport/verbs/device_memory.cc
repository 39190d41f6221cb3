#include "transport/verbs/device_memory.h"

namespace clustar::transport::verbs {

DeviceMemory find_device_memory(std::span<const Port> ports, const Settings& settings) {
  (void)ports;
  DeviceMemory found;
  if (!settings.offer_gpu_memory) {
    found.text = "off: CLUSTAR_GDR=off";
    return found;
  }
  if (settings.emulate_gpu) {
    found.kinds = gdr::kAnyKind;
    found.emulated = true;
    found.force_flush = true;
    found.text = "emulated by host memory: CLUSTAR_GDR_EMULATE=1, for tests only";
  }
  return found;
}

}  // namespace clustar::transport::verbs
