// Devices over kernel UDP.
#pragma once

#include "mlt/driver/device.h"

namespace clustar::mlt::driver {

Result<Device> open_udp_device(const transport::net::Interface& interface, const transport::net::Address& local);

}  // namespace clustar::mlt::driver
