// The address that a port has, and where packets to others go. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "transport/io/dpdk/core/ethernet.h"

namespace clustar::transport::io::dpdk {

std::optional<Ipv4> parse_ipv4_address(std::string_view text);
std::string to_text(Ipv4 ip);

struct Subnet {
  Ipv4 address = 0;
  std::uint8_t prefix = 24;       // 1 .. 31
  std::optional<Ipv4> gateway{};  // within it

  bool contains(Ipv4 ip) const { return ((ip ^ address) >> (32 - prefix)) == 0; }
  // Whose MAC packets to `to` carry; nothing: there is no way.
  std::optional<Ipv4> next_hop(Ipv4 to) const {
    if (contains(to)) return to;
    return gateway;
  }
};

}  // namespace clustar::transport::io::dpdk
