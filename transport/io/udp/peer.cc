#include "transport/io/udp/peer.h"

#include <cstring>
#include <string>

namespace clustar::transport::io::udp {

std::size_t UdpPeer::Hash::operator()(const Origin& origin) const {
  std::uint64_t mixed = (origin.high * 0x9e3779b97f4a7c15ull) ^ origin.low;
  mixed = (mixed ^ (mixed >> 32)) * 0xd6e8feb86659fd93ull + origin.port_and_path;
  mixed = (mixed ^ (mixed >> 32)) * 0xd6e8feb86659fd93ull;
  return mixed ^ (mixed >> 32);
}

UdpPeer::UdpPeer(const UdpAddress& address) {
  addresses_.reserve(address.ports.size());
  for (const std::uint16_t port : address.ports) addresses_.emplace_back(address.ip, port);
}

UdpPeer::Origin UdpPeer::origin_of(const SocketAddress& from, std::size_t path) {
  const IpAddress ip = from.ip();
  Origin origin;
  std::memcpy(&origin.high, ip.bytes.data(), 8);
  std::memcpy(&origin.low, ip.bytes.data() + 8, 8);
  origin.port_and_path = static_cast<std::uint32_t>(from.port()) << 16 | static_cast<std::uint32_t>(path);
  return origin;
}

std::string UdpPeer::name_of(std::size_t path) const {
  return addresses_[path].ip().to_string() + " port " + std::to_string(addresses_[path].port());
}

}  // namespace clustar::transport::io::udp
