// Which memory the ports of a NIC reach by themselves.
#pragma once

#include <span>

#include "transport/io/verbs/device_memory.h"
#include "transport/verbs/port.h"
#include "transport/verbs/settings.h"

namespace clustar::transport::verbs {

using io::verbs::DeviceMemory;

// Asks the ports' drivers; only what all ports do is offered.
DeviceMemory find_device_memory(std::span<const Port> ports, const Settings& settings);

}  // namespace clustar::transport::verbs
