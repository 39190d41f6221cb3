// What the kernel says of a network interface that a virtual device of DPDK takes packets from. Needs no DPDK.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace clustar::transport::io::dpdk {

// The steering program's name in the kernel: at most 15 characters.
inline constexpr const char* kSteeringName = "clustar_steer";

struct KernelInterface {
  int index = 0;
  bool is_up = false;
  std::size_t mtu = 0;               // bytes of an IP packet; 0: unknown
  std::uint32_t receive_queues = 0;  // over which it spreads packets; 0: its driver does not say
  bool has_ipv4 = false;             // an address that a device may share
  bool has_xdp = false;              // an XDP program sees its packets first
  std::string xdp_name{};            // of that program; empty: this user may not ask
  bool has_port = false;             // a net_af_xdp port of some process of clustar is on it

  // For people.
  std::string program() const {
    return xdp_name.empty() ? "whose name only CAP_SYS_ADMIN may ask: another tool's, or a killed rank's" : xdp_name;
  }
  bool is_steered() const { return has_xdp && xdp_name == kSteeringName; }
  // What AF_XDP's own libraries bring along, which DPDK may replace.
  bool has_plain_program() const { return xdp_name == "xsk_def_prog" || xdp_name == "xdp_dispatcher"; }
};

// Of this network namespace; nothing: there is none of this name.
std::optional<KernelInterface> kernel_interface(const std::string& name);

// By name, in this network namespace, of the socket that a process binds as long as it has a net_af_xdp port on the
// interface: the kernel takes it back when the process ends, however it ends.
std::string xdp_port_lock(int index);

}  // namespace clustar::transport::io::dpdk
