// Lanes over plain kernel sockets, a TCP connection each: fair sharing between flows, as the kernel has it.
#pragma once

#include <memory>
#include <string>

#include "bench/coflow/live/lanes.h"

namespace clustar::bench::coflow::live {

// `address`: this host's. `congestion_control`: empty for the kernel's default. Errors: no such congestion control, no
// socket.
Result<std::unique_ptr<Lanes>> socket_lanes(const std::string& address, const std::string& congestion_control);

}  // namespace clustar::bench::coflow::live
