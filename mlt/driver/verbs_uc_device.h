// Devices over RDMA verbs that place payload: writes over UC, and UD for everything else.
#pragma once

#include "mlt/driver/device.h"
#include "transport/base/config.h"

namespace clustar::mlt::driver {

// Errors: as open_verbs_ud_device.
Result<Device> open_verbs_uc_device(const Config& config, const transport::net::Interface& interface,
                                    const transport::net::Address& local);

}  // namespace clustar::mlt::driver
