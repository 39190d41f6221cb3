// Devices over RDMA verbs: UD queue pairs on the RoCE v2 port that has an interface's address.
#pragma once

#include <cstdint>
#include <string>

#include "mlt/driver/device.h"
#include "transport/base/config.h"
#include "transport/io/verbs/gid.h"

namespace clustar::transport::io::verbs {
class UdIo;
}

namespace clustar::mlt::driver {

// Where an address of this host is an RDMA port's, too.
struct RdmaPort {
  std::string device{};
  std::uint8_t port = 1;
  int gid_index = 0;
  bool software = false;  // no PCI device is behind it
};
// Error kUnavailable: no active RoCE v2 port that `ib_hca` lets pass has it; names those it lets pass.
Result<RdmaPort> rdma_port_of(const Config& config, const transport::net::Interface& interface,
                              const transport::net::Address& local);

// RoCE v2 takes an interface's addresses as the GIDs of its port.
transport::io::verbs::Gid gid_of(const transport::net::Address& address);

// Which memory the RDMA device reaches, by settings and by what device and kernel say. Opens it, for a moment.
Reach reach_of(const Config& config, const RdmaPort& place);
// The same for an interface; host memory, with the reason, if it is no RDMA port.
Reach find_verbs_reach(const Config& config, const transport::net::Interface& interface,
                       const transport::net::Address& local);
// What is left of it now that the device is open.
Reach reach_with(const Reach& reach, const transport::io::verbs::UdIo& io);

// Errors: as rdma_port_of, and what the device refuses.
Result<Device> open_verbs_ud_device(const Config& config, const transport::net::Interface& interface,
                                    const transport::net::Address& local);

}  // namespace clustar::mlt::driver
