// What an end keeps of a peer, for a PeerTable. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "transport/io/dpdk/core/ethernet.h"
#include "transport/io/dpdk/core/subnet.h"

namespace clustar::transport::io::dpdk {

struct Peer {
  // Address, port and path in one number.
  using Origin = std::uint64_t;
  using Hash = std::hash<std::uint64_t>;

  Ipv4 ip = 0;
  std::uint32_t way = 0;
  std::vector<std::uint16_t> ports{};  // one per path

  static Origin origin_of(Ipv4 ip, std::uint16_t port, std::size_t path) {
    return Origin{ip} << 32 | Origin{port} << 8 | path;
  }
  std::size_t paths() const { return ports.size(); }
  Origin origin(std::size_t path) const { return origin_of(ip, ports[path], path); }
  std::string name_of(std::size_t path) const { return to_text(ip) + " port " + std::to_string(ports[path]); }
};

}  // namespace clustar::transport::io::dpdk
