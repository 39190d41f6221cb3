// Ports of DPDK by the devices' names.
#pragma once

#include <cstdint>
#include <string>

#include "transport/base/result.h"

namespace clustar::bench::dpdk {

// `device`: as in CLUSTAR_DPDK_DEVICES; it is open.
Result<std::uint16_t> port_of(const std::string& device);
// Error kUnavailable: after 5 s it has none.
Result<void> wait_for_link(std::uint16_t port);
// Frames that it has received since it was opened.
std::uint64_t received_by(std::uint16_t port);

}  // namespace clustar::bench::dpdk
