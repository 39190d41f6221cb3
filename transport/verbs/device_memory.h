// Which memory a NIC reaches by itself: that of the host, and of GPUs by which way, or why not.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "gdr/memory.h"
#include "transport/verbs/port.h"
#include "transport/verbs/settings.h"

namespace clustar::transport::verbs {

struct DeviceMemory {
  std::uint32_t kinds = gdr::kHostOnly;  // a set of gdr::bit(kind)
  // CLUSTAR_GDR_EMULATE: host memory plays a GPU's, and is registered as what it is.
  bool emulated = false;
  // Received bytes are to be flushed, whatever the GPU.
  bool force_flush = false;
  std::string text{};  // for a person, one line: the ways, or why there is none

  bool has(gdr::MemoryKind kind) const { return (kinds & gdr::bit(kind)) != 0; }
  bool any() const { return (kinds & ~gdr::kHostOnly) != 0; }
};

// Asks the ports' driver; all of them must do what is offered.
DeviceMemory find_device_memory(std::span<const Port> ports, const Settings& settings);

}  // namespace clustar::transport::verbs
