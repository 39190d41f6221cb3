// What CLUSTAR_DPDK_DEVICES says: which devices of DPDK, and which addresses they have. Pure.
//
//   DEVICE[@ADDRESS/PREFIX[>GATEWAY]][;DEVICE...]
//
// DEVICE is what DPDK calls one: a place on the PCI bus, or a virtual driver's name, and its arguments behind commas:
// "0000:65:00.0", "net_af_packet0,iface=eth1". Without ADDRESS: that which the kernel has on the interface that the
// argument `iface` names.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "transport/base/result.h"
#include "transport/io/dpdk/core/subnet.h"

namespace clustar::transport::io::dpdk {

struct DeviceSpec {
  std::string name;       // without arguments
  std::string arguments;  // "iface=eth1", or empty
  bool pci = false;
  std::optional<Subnet> subnet{};

  std::string whole() const { return arguments.empty() ? name : name + "," + arguments; }
  std::optional<std::string> argument(std::string_view key) const;
  // The driver of a virtual device: its name without the number behind it.
  std::string_view driver() const;
  // The argument by which a virtual driver is told how many queues it shares with the kernel; empty: it has none.
  std::string_view queues_argument() const;
  // Of which packets are read. The kernel spreads them over all queues that a virtual device has, so what its arguments
  // say counts more than `usual`.
  std::uint32_t queues(std::uint32_t usual) const;
};

// Packet buffers of a port with so many queues, descriptors of a queue both ways, and held packets: what its rings
// hold, what receivers hold, and bursts on their way.
std::uint32_t buffers_of_port(std::uint32_t queues, std::uint32_t descriptors, std::uint32_t held);
// Of a net_af_xdp port, with descriptors each way: the driver fills its rings of 2,048 whatever it is told
// (DPDK 22.11), and the kernel's have powers of two.
std::uint32_t buffers_of_xdp_port(std::uint32_t queues, std::uint32_t descriptors, std::uint32_t held);

// Error kInvalidArgument: which part is wrong, and what is allowed.
Result<std::vector<DeviceSpec>> parse_devices(std::string_view text);

}  // namespace clustar::transport::io::dpdk
