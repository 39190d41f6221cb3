// GIDs, the addresses of RDMA ports, and the pure choice of one out of a port's table.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "transport/net/endpoint.h"

namespace clustar::transport::io::verbs {

struct Gid {
  std::array<std::uint8_t, 16> bytes{};  // network order; an IPv4 address as ::ffff:a.b.c.d

  bool empty() const { return *this == Gid{}; }
  bool ipv4() const;
  bool link_local() const { return bytes[0] == 0xfe && (bytes[1] & 0xc0) == 0x80; }      // of IPv6
  bool self_assigned() const { return ipv4() && bytes[12] == 169 && bytes[13] == 254; }  // IPv4, without a DHCP server
  std::string to_string() const;                                                         // "10.0.0.1" for IPv4
  bool operator==(const Gid&) const = default;
};

// RoCE v2 takes an interface's addresses as the GIDs of its port.
Gid gid_of(const net::Endpoint& address);
net::Endpoint endpoint_of(const Gid& gid);  // port 0

enum class GidType : std::uint8_t { kInfiniBand, kRoceV1, kRoceV2 };
const char* to_string(GidType type);

// One entry of a port's table. An index may be a hole: then there is no entry with it.
struct GidEntry {
  std::uint32_t index = 0;
  Gid gid{};
  GidType type = GidType::kRoceV2;
  std::uint32_t ifindex = 0;  // of the network device, numbered in the namespace that it belongs to; 0 = none
  std::string interface {};   // of this process's network namespace that has this address; empty = none has
};

// An address of this network namespace, in the form of a GID.
struct AddressOwner {
  Gid gid{};
  std::string interface {};
  std::uint32_t ifindex = 0;
};
// The interface that has `gid`, the one with `ifindex` if several have it (VLANs of one card have its link-local
// address, routers one address on many); empty: none has. In another namespace the same number is another device, so it
// prefers.
std::string owner_of(std::span<const AddressOwner> owners, const Gid& gid, std::uint32_t ifindex);

enum class GidFamily : std::uint8_t { kAny, kIpv4, kIpv6 };

struct GidWish {
  int index = -1;  // taken whatever it is, if it is there; -1 = choose
  GidFamily family = GidFamily::kAny;
  // Interfaces whose addresses may be used; none given: all. Not those of sockets: on a cluster they are usually the
  // management network's, which has no RDMA port.
  std::function<bool(const std::string&)> interface {};
};

struct GidRefusal {
  std::uint32_t index = 0;
  std::string reason{};
};

struct GidChoice {
  std::optional<GidEntry> chosen{};
  std::vector<GidRefusal> refused{};  // every other entry, by index
  std::string warning{};              // what is wrong with a chosen index that was asked for; empty = nothing

  // One sentence, for an error or a banner: the entry, or why there is none.
  std::string summary() const;
};

// On RoCE: version 2, whose packets are routed and reach any subnet; an address that is not link-local, and belongs to
// an interface of this network namespace: in a pod the table also shows the host's and other pods' addresses. IPv4
// before IPv6, as NCCL and UCX do, so that peers with both agree, but 169.254.0.0/16, which no router forwards, behind
// both: it may be all that back-to-back ports have. Then the lowest index. On InfiniBand: index 0, or the first there
// is.
GidChoice choose_gid(std::span<const GidEntry> table, const GidWish& wish);

}  // namespace clustar::transport::io::verbs
