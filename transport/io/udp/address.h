// Addresses of hosts, and of the far ends of UDP paths.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "transport/base/result.h"
#include "transport/io/address_blob.h"
#include "transport/net/endpoint.h"

namespace clustar::transport::io::udp {

struct IpAddress {
  bool ipv6 = false;
  std::array<std::uint8_t, 16> bytes{};  // network order; IPv4 uses the first four, the others are 0

  static Result<IpAddress> parse(const std::string& text);
  std::string to_string() const;
  bool is_any() const { return bytes == std::array<std::uint8_t, 16>{}; }
  bool operator==(const IpAddress&) const = default;
};

// One end: a host's address and the port of each path. Path k runs from ports[k] of one end to ports[k] of the other.
struct UdpAddress {
  IpAddress ip;
  std::vector<std::uint16_t> ports;
  bool operator==(const UdpAddress&) const = default;
};

IpAddress ip_of(const net::Endpoint& endpoint);
net::Endpoint endpoint_of(const IpAddress& ip);

// How an end is told to peers:
// | 0, or family 4 or 6 | count | ports (2 each) | address, unless the family is 0: 4 or 16 |
struct UdpBlob {
  std::optional<IpAddress> ip{};  // nothing: the host of the control connection
  std::vector<std::uint16_t> ports{};

  // Error kRemote: damaged.
  static Result<UdpBlob> parse(const AddressBlob& blob);
  AddressBlob serialize() const;  // of at most 32 ports
};

// What system calls take.
class SocketAddress {
 public:
  SocketAddress() = default;
  SocketAddress(const IpAddress& ip, std::uint16_t port);
  sockaddr* raw() { return &storage_.any; }
  const sockaddr* raw() const { return &storage_.any; }
  socklen_t length() const { return ipv6() ? sizeof(sockaddr_in6) : sizeof(sockaddr_in); }
  static constexpr socklen_t capacity() { return sizeof(sockaddr_in6); }
  bool ipv6() const { return storage_.any.sa_family == AF_INET6; }
  IpAddress ip() const;
  std::uint16_t port() const;

 private:
  union {
    sockaddr any;
    sockaddr_in in4;
    sockaddr_in6 in6;
  } storage_ = {.in6 = {}};
};

// The address that `local` names: an address itself, or an interface's first IPv4, otherwise first global IPv6 address.
Result<IpAddress> resolve_local(const std::string& local);
// The interface that has this address; empty if there is none.
std::string interface_of(const IpAddress& ip);

}  // namespace clustar::transport::io::udp
