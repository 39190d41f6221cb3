// A network namespace for a test's own interfaces.
#pragma once

#include <string>

#include "transport/base/result.h"

namespace clustar::transport::conformance {

// For this process, entered by the first call; loopback is up. Error: no right to one.
Result<void> enter_own_network();
// Runs it in a shell. Error: what it said.
Result<void> shell(const std::string& command);

}  // namespace clustar::transport::conformance
