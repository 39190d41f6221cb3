// Ends over libfabric's datagrams on loopback.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "libfabric_shim/dgram/ofi_io.h"
#include "tests/conformance/packet_io_under_test.h"

namespace clustar::transport::conformance {

// An end of `provider` at `host`, an address of this machine. Error: there is none, or its sockets have too little room
// for what the suite leaves waiting.
Result<std::unique_ptr<ofi::OfiIo>> open_ofi(const std::string& provider, const std::string& host,
                                             const ofi::OfiIoOptions& options);
std::vector<PacketIoUnderTest> ofi_packets_under_test();

}  // namespace clustar::transport::conformance
