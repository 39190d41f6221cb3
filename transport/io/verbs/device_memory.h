// Which memory a NIC reaches by itself: that of the host, and of GPUs by which ways, or why by none. The one place that
// decides it, for the RC transport and for packets.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "gdr/core/mr_cache.h"
#include "gdr/core/ranked.h"
#include "gdr/memory.h"

namespace clustar::transport::io::verbs {

class ProtectionDomain;

struct DeviceMemory {
  gdr::WayFacts facts{};
  std::uint32_t kinds = gdr::kHostOnly;  // a set of gdr::bit(kind)
  std::string text{};                    // for a person, one line: the ways, or why there is none
  // Received bytes are to be flushed, whatever the GPU: data and completions take different ways.
  bool force_flush = false;
  std::string data_direct_path{};  // in sysfs, of the function by which the NIC reaches GPUs; empty: its own

  bool has(gdr::MemoryKind kind) const { return (kinds & gdr::bit(kind)) != 0; }
  bool any() const { return (kinds & ~gdr::kHostOnly) != 0; }
  // Of what is registered as its memory.
  gdr::PageSizes pages() const;
};

// What the settings say.
struct MemoryWish {
  bool offered = true;    // false: CLUSTAR_GDR=off
  bool emulated = false;  // CLUSTAR_GDR_EMULATE
};

// `domains`: one of each port that is to be one device, at least one; only what all do is offered. `software`: one of
// them is no PCI device. Asks drivers and kernel, nvidia_peermem's too.
DeviceMemory find_device_memory(std::span<const ProtectionDomain* const> domains, const std::string& nic, bool software,
                                const MemoryWish& wish);

}  // namespace clustar::transport::io::verbs
