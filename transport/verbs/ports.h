// Which RDMA ports can be used as the settings are, and why the others cannot.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "transport/api/transport.h"
#include "transport/base/result.h"
#include "transport/io/verbs/device_list.h"
#include "transport/io/verbs/gid.h"
#include "transport/verbs/settings.h"

namespace clustar::transport::verbs {

struct UsablePort {
  io::verbs::PortInfo info{};
  io::verbs::GidEntry gid{};
  std::string warning{};        // what is wrong with a GID index that was asked for; empty = nothing
  std::uint64_t chip_guid = 0;  // the same for all ports and functions of one NIC
  int max_queue_pairs = 0;
};

struct PortSearch {
  std::vector<UsablePort> usable{};
  std::vector<std::string>
      refused{};  // "mlx5_1 port 1: the port is down", one for each other port that passes the filter
};

// Opens every device that passes the filter, for a moment. Error: a filter that makes no sense, or a kernel or library
// without RDMA.
Result<PortSearch> search_ports(const Settings& settings);

// Why there is none to use.
std::string no_port_text(const Settings& settings, const std::vector<std::string>& refused);

// The usable ones. Error kUnavailable: there is none, with the reason for each that was refused.
Result<std::vector<UsablePort>> usable_ports(const Settings& settings);

// Where NCCL is to see a PCI function: ports of one NIC are one device there, by which it finds what to fuse. So
// function 0 stands for all, and a virtual function's physical one for it; `path` itself where this machine does not
// show them.
std::string chip_pci_path(const std::string& path);

// What is known without a transport: name ("mlx5_0", with ":2" where a device has several ports), place, GUID, port,
// speed (10,000 where the driver does not tell) and the queue pairs that a device has. Memory: of the host.
std::vector<DeviceProperties> device_properties(std::span<const UsablePort> ports);

}  // namespace clustar::transport::verbs
