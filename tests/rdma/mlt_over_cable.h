// MLT over verbs, rank by rank on the two devices of one host, so that each message crosses the cable.
#pragma once

#include <string>

#include "tests/conformance/transport_under_test.h"
#include "transport/io/verbs/verbs_backend.h"

namespace clustar::transport::conformance {

// `psk_mode` empty: without a key.
TransportUnderTest mlt_over_cable(const std::string& name, const std::string& engine, const std::string& psk_mode,
                                  io::verbs::VerbsBackend::Kind kind);

}  // namespace clustar::transport::conformance
