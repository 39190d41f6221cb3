// Which domains of libfabric are devices: those of the chosen provider, on the interfaces that the user allows.
#pragma once

#include <string>
#include <vector>

#include "libfabric_shim/choice.h"
#include "libfabric_shim/info.h"
#include "libfabric_shim/rdm/nic_settings.h"
#include "transport/api/transport.h"
#include "transport/net/interfaces.h"

namespace clustar::transport::ofi {

struct Found {
  Info info;
  std::string name;        // of the device
  net::Interface control;  // by which two ends find each other
  DeviceProperties properties{};
};

// The domains of `provider`, one per interface where its addresses are the host's (tcp, verbs), in the order of the
// interfaces, otherwise one per name (efa, cxi, shm), in libfabric's. Error: none that can be used, and why.
Result<std::vector<Found>> find_devices(std::vector<Info> infos, const std::string& provider, const Settings& settings);

}  // namespace clustar::transport::ofi
