// The network interfaces of this host as devices, chosen with NCCL's syntax.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "transport/base/result.h"
#include "transport/net/socket.h"

namespace clustar::transport::net {

inline constexpr int kUnknownMbps = 10000;       // NCCL's default
inline constexpr std::size_t kMaxAddresses = 4;  // of one interface, so that a handle holds them

struct Interface {
  std::string name;
  std::vector<Address> addresses;  // ports 0; the preferred family first; never empty
  int speed_mbps = 0;              // kUnknownMbps where nobody tells
  std::string pci_path;            // empty = not a PCI device
  bool speed_is_told = false;      // by the driver
  bool speed_is_set = false;       // by NetworkSettings::line_mbps

  // Virtual interfaces make up what they say of their speed; those of virtual machines often have a place on the PCI
  // bus, and say nothing.
  bool knows_speed() const { return speed_is_set || (speed_is_told && !pci_path.empty()); }
  std::uint64_t bytes_per_second() const { return static_cast<std::uint64_t>(speed_mbps) * 1'000'000 / 8; }
};

// NCCL's syntax of NCCL_SOCKET_IFNAME: "eth,ib" prefixes; "=eth0" exact names; "^docker" all but these prefixes;
// "^=eth0" all but these names. An empty filter matches everything.
class InterfaceFilter {
 public:
  explicit InterfaceFilter(std::string_view text);
  bool matches(std::string_view name) const;

 private:
  bool exclude_ = false;
  bool exact_ = false;
  std::vector<std::string> names_;
};

enum class Family : std::uint8_t { kAny, kIpv4, kIpv6 };
// Of CLUSTAR_SOCKET_FAMILY: any | ipv4 | ipv6.
inline Family family_of(std::string_view name) {
  if (name == "ipv4") return Family::kIpv4;
  return name == "ipv6" ? Family::kIpv6 : Family::kAny;
}

// Interfaces that are up and have a usable address (link-local IPv6 is not). Without a filter, as NCCL does: IP over
// InfiniBand (ib*), otherwise all but loopback and docker, otherwise docker, otherwise loopback. `sysfs` is /sys, or a
// fixture of it.
Result<std::vector<Interface>> find_interfaces(const std::string& filter, Family family,
                                               const std::string& sysfs = "/sys");
// Their speed is NetworkSettings::line_mbps, unless that is 0.
void set_speed(std::vector<Interface>& interfaces, int line_mbps);

// Speed in Mbit/s from sysfs; 0 when the driver does not tell.
int interface_speed(const std::string& sysfs, const std::string& name);
std::string interface_pci_path(const std::string& sysfs, const std::string& name);

}  // namespace clustar::transport::net
