// What the kernel has of a port's address: on an interface that a virtual device shares with it, it answers ARP and
// ICMP itself, and refuses datagrams for ports that no socket has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "transport/base/file_descriptor.h"
#include "transport/base/result.h"
#include "transport/io/dpdk/core/subnet.h"

namespace clustar::transport::io::dpdk {

// The first IPv4 address of an interface that is up, its prefix, and the gateway of its default route. Error: it has
// none.
Result<Subnet> subnet_of_interface(const std::string& name);
// Of `table`, in the form of /proc/net/route.
std::optional<Ipv4> default_gateway(const std::string& table, const std::string& interface);
bool kernel_has(Ipv4 address);

// A socket that gets a copy of the interface's ARP packets, with Ethernet's header.
Result<FileDescriptor> hear_arp_on(const std::string& interface);

// This process's open sockets of a family, AF_PACKET or AF_XDP.
std::vector<int> sockets_of(int family);

// Sockets that hold UDP ports, so that the kernel gives them to nobody and refuses nothing that comes for them. They
// are never read.
class HeldPorts {
 public:
  // `mark`: of the sockets (SO_MARK), where it is not 0. Error: one of them is taken, or may not be marked.
  static Result<HeldPorts> hold(Ipv4 address, std::uint16_t first, std::uint8_t count, std::uint32_t mark = 0);

 private:
  std::vector<FileDescriptor> sockets_;
};

}  // namespace clustar::transport::io::dpdk
