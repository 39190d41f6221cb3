// Devices out of a module (transport/module.h): what it hands out by these names, and the types behind them.
#pragma once

#include <string>

#include "mlt/driver/device.h"
#include "transport/base/config.h"

namespace clustar::mlt::driver {

// Name of the function that opens devices for CLUSTAR_IO=`io`.
inline std::string module_device_name(const std::string& io) { return "mlt_device_" + io; }
using OpenModuleDevice = Result<Device> (*)(const Config&, const net::Interface& interface, const net::Address& local);

// Of those devices, before they are opened. Error: only if the module itself fails.
inline constexpr const char* kFindReach = "mlt_find_reach";
using FindModuleReach = Result<Reach> (*)(const Config&, const net::Interface& interface, const net::Address& local);

// Error: why none of this machine's NICs can be used, before anything is opened.
inline constexpr const char* kCheckDevices = "mlt_check_devices";
using CheckModuleDevices = Result<void> (*)(const Config&);

}  // namespace clustar::mlt::driver
