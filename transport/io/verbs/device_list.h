// Which RDMA ports this machine has, and what is known of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "transport/base/result.h"
#include "transport/io/verbs/hca_filter.h"

namespace clustar::transport::io::verbs {

enum class LinkLayer : std::uint8_t { kUnknown, kInfiniBand, kEthernet };

struct PortInfo {
  std::string device{};
  int port = 0;  // 0: the device could not be opened, see problem
  bool active = false;
  std::string state{};  // "active", "down", as ibv_devinfo says
  LinkLayer link_layer = LinkLayer::kUnknown;
  int active_mtu = 0;  // bytes of payload in a packet
  int max_mtu = 0;
  int speed_mbps = 0;  // 2,500 of rdma_rxe, whatever is below it
  std::uint16_t lid = 0;
  std::uint64_t node_guid = 0;
  std::string pci_path{};  // in sysfs; empty = not a PCI device (rdma_rxe over a virtual interface)
  int numa_node = -1;      // -1 = unknown
  std::string problem{};   // why it cannot be used, for a person; empty = none known
};

// Every port that `filter` lets pass, inactive ones and those with a problem, too; in the library's order, which may
// change at a reboot. Empty: no device. Error: the library failed.
Result<std::vector<PortInfo>> list_ports(const HcaFilter& filter, const std::string& sysfs = "/sys");

// Of port attributes: lanes times signalling rate. 0 = codes that this version does not know.
int speed_mbps(std::uint8_t active_speed, std::uint8_t active_width);
std::string device_pci_path(const std::string& sysfs, const std::string& device);
int device_numa_node(const std::string& sysfs, const std::string& device);

}  // namespace clustar::transport::io::verbs
