// Which memory a NIC reaches by itself: that of the host, and of GPUs by which ways, or why by none.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "gdr/core/ranked.h"
#include "gdr/memory.h"
#include "transport/verbs/port.h"
#include "transport/verbs/settings.h"

namespace clustar::transport::verbs {

struct DeviceMemory {
  gdr::WayFacts facts{};
  std::uint32_t kinds = gdr::kHostOnly;  // a set of gdr::bit(kind)
  std::string text{};                    // for a person, one line: the ways, or why there is none
  // Received bytes are to be flushed, whatever the GPU: data and completions take different ways.
  bool force_flush = false;
  std::string data_direct_path{};  // in sysfs, of the function by which the NIC reaches GPUs; empty: its own

  bool has(gdr::MemoryKind kind) const { return (kinds & gdr::bit(kind)) != 0; }
  bool any() const { return (kinds & ~gdr::kHostOnly) != 0; }
};

// Asks the ports' drivers, and the kernel for nvidia_peermem; only what all ports do is offered.
DeviceMemory find_device_memory(std::span<const Port> ports, const Settings& settings);

}  // namespace clustar::transport::verbs
