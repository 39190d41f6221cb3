// MLT over verbs, rank by rank on the two devices of one host, so that each message crosses the cable.
#pragma once

#include <string>

#include "mlt/driver/module_device.h"
#include "tests/conformance/transport_under_test.h"

namespace clustar::transport::conformance {

// `psk_mode` empty: without a key.
TransportUnderTest mlt_over_cable(const std::string& name, const std::string& engine, const std::string& psk_mode,
                                  mlt::driver::OpenModuleDevice open);

}  // namespace clustar::transport::conformance
