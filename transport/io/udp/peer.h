// What a UdpIo keeps of a peer, for a PeerTable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "transport/io/udp/address.h"

namespace clustar::transport::io::udp {

class UdpPeer {
 public:
  struct Origin {
    std::uint64_t high = 0;  // of the address
    std::uint64_t low = 0;
    std::uint32_t port_and_path = 0;
    bool operator==(const Origin&) const = default;
  };
  struct Hash {
    std::size_t operator()(const Origin& origin) const;
  };

  explicit UdpPeer(const UdpAddress& address);
  // Where it listens.
  const SocketAddress& address(std::size_t path) const { return addresses_[path]; }

  // Of what arrived on the socket of `path`.
  static Origin origin_of(const SocketAddress& from, std::size_t path);
  std::size_t paths() const { return addresses_.size(); }
  Origin origin(std::size_t path) const { return origin_of(addresses_[path], path); }
  std::string name_of(std::size_t path) const;

 private:
  std::vector<SocketAddress> addresses_;  // one per path
};

}  // namespace clustar::transport::io::udp
