// Hosts over DPDK's virtual devices, in this process.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/conformance/packet_io_under_test.h"
#include "transport/io/dpdk/dpdk_io.h"

namespace clustar::transport::conformance {

// DPDK, begun without huge pages; error: it cannot begin here.
Result<void> begin_dpdk();

// An end of a host `device` with `address` (10.9.0.1/24) on it.
Result<std::unique_ptr<io::dpdk::DpdkIo>> open_dpdk(const std::string& device, const std::string& address,
                                                    const io::dpdk::PortOptions& port = {},
                                                    const io::dpdk::DpdkIoOptions& options = {});

}  // namespace clustar::transport::conformance
