// What DPDK needs of a machine, as it is here.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "bench/doctor/dpdk_rights.h"
#include "transport/io/dpdk/core/subnet.h"
#include "transport/io/dpdk/kernel_interface.h"

namespace clustar::bench::doctor {

struct PciPort {
  std::string address{};     // 0000:65:00.0
  std::string driver{};      // of the kernel; empty: none
  std::string vendor{};      // "0x15b3"
  std::string interface {};  // of the kernel; empty: none
  bool is_up = false;        // the interface
  bool has_group = false;    // of an IOMMU
  std::string group_file{};  // /dev/vfio/12; empty: it is not bound to vfio-pci
  bool group_opens = false;  // this user may open it
};

struct DpdkFacts {
  std::optional<bool> module{};     // libclustar-dpdk.so can be opened; nothing: not beside the plugin
  std::string why{};                // it cannot be opened
  std::string devices{};            // CLUSTAR_DPDK_DEVICES
  std::uint64_t free_huge_mb = 0;   // of huge pages
  std::uint64_t wanted_mb = 256;    // CLUSTAR_DPDK_MEMORY_MB
  std::string huge_pages = "auto";  // CLUSTAR_DPDK_HUGE_PAGES
  bool has_iommu = false;
  bool has_vfio = false;     // the driver vfio-pci is loaded
  bool unsafe_vfio = false;  // vfio without an IOMMU is allowed
  DpdkRights rights{};
  std::size_t xdp_memory = 0;                        // bytes of the packets of a net_af_xdp port
  std::string settings_error{};                      // the settings as a whole are refused
  std::vector<PciPort> ports{};                      // network controllers, by address
  std::uint32_t queues = 1;                          // CLUSTAR_DPDK_QUEUES
  std::string control_interfaces{};                  // CLUSTAR_CONTROL_IFNAME
  std::set<transport::io::dpdk::Ipv4> kernel_has{};  // of the devices' addresses
  // Those that virtual devices name (iface=) and the kernel has, by name.
  std::map<std::string, transport::io::dpdk::KernelInterface> interfaces{};
};

// `sysfs` and `dev`: /sys and /dev, or fixtures of them.
std::vector<PciPort> pci_ports(const std::string& sysfs, const std::string& dev);
DpdkFacts dpdk_facts_here();

}  // namespace clustar::bench::doctor
