// Which domains with datagrams are devices: those of the chosen provider, on the interfaces that the user allows.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "libfabric_shim/info.h"
#include "transport/io/link_profile.h"
#include "transport/net/interfaces.h"

namespace clustar::transport::ofi {

struct DatagramDevice {
  Info info;
  net::Interface interface;    // whose first address is the domain's, where the domain has one
  std::size_t most_bytes = 0;  // of a datagram, as far as the interface limits it; 0: it does not
  io::LinkProfile link{};
};

// In the order of the interfaces; `sysfs`: /sys, or a fixture of it. Error: none that can be used, and why.
Result<std::vector<DatagramDevice>> find_datagram_devices(const std::vector<Info>& infos, const std::string& provider,
                                                          const std::vector<net::Interface>& interfaces,
                                                          const std::string& sysfs = "/sys");

// Of an RDMA device's port 1, which libfabric's datagrams use; empty: none.
std::string interface_of_gid(const std::string& sysfs, const std::string& device, int gid);

}  // namespace clustar::transport::ofi
