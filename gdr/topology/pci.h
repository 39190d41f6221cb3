// One PCI device in sysfs.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gdr/core/machine.h"
#include "transport/base/result.h"

namespace clustar::gdr {

// "0000:1b:00.0".
bool is_pci_address(std::string_view text);
// The addresses above a device in its path, from the root port down, without its own.
std::vector<std::string> bridges_of(std::string_view path);

// Of the folder that `path`, without links, names. What is missing in it stays unknown. Error: no class can be read.
Result<PciDevice> read_pci_device(const std::string& path);
Bridge read_bridge(const std::string& path);

// The control register of ACS in a device's configuration space; nothing: it has no such capability. Error: too little
// of it could be read, or it is damaged.
Result<std::optional<std::uint16_t>> acs_control(std::string_view config);

}  // namespace clustar::gdr
