// The peers of a UdpIo, and what is agreed with them: addresses, and how long packets may be.
#include <algorithm>

#include "transport/io/control_network.h"
#include "transport/io/udp/udp_io.h"

namespace clustar::transport::io::udp {

// Never below what every path carries: that would be a wrong answer, not a route.
bool UdpIo::lower_to_route(const SocketAddress& peer) {
  const std::size_t mtu = route_mtu(local_.ip, peer);
  return mtu >= least_mtu(local_.ip.ipv6) && lower_mtu(mtu);
}

bool UdpIo::allow_fragments() {
  if (fragments_ || capabilities_.max_packet >= once_) return false;
  for (const Path& path : paths_) {
    if (!udp::allow_fragments(path.socket.file, local_.ip.ipv6)) return false;
  }
  return fragments_ = true;
}

AddressBlob UdpIo::local_address() const {
  return UdpBlob{apart_ ? std::optional(local_.ip) : std::nullopt, local_.ports}.serialize();
}

Result<PeerId> UdpIo::add_peer(const AddressBlob& address, const net::Endpoint& control) {
  auto blob = UdpBlob::parse(address);
  if (!blob) return tl::unexpected(blob.error());
  const auto host = data_host(control, blob->ip ? std::optional(endpoint_of(*blob->ip)) : std::nullopt, apart_);
  if (!host) return fail(host.error().code, "udp: " + host.error().message);
  return add_peer({ip_of(*host), std::move(blob->ports)});
}

Result<PeerId> UdpIo::add_peer(const UdpAddress& address) {
  const std::string name = address.ip.to_string();
  if (address.ip.ipv6 != local_.ip.ipv6 || address.ip.is_any()) {
    return fail(ErrorCode::kInvalidArgument,
                "udp: " + name + " cannot be a peer of " + local_.ip.to_string() + ": one address family, no wildcard");
  }
  if (address.ports.size() != paths_.size()) {
    return fail(ErrorCode::kInvalidUsage, "udp: peer " + name + " has " + std::to_string(address.ports.size()) +
                                              " paths, this end " + std::to_string(paths_.size()) +
                                              ": both must be configured with the same number");
  }
  if (std::ranges::find(address.ports, 0) != address.ports.end()) {
    return fail(ErrorCode::kInvalidArgument, "udp: peer " + name + " has a path with port 0");
  }
  auto peer = peers_.add(UdpPeer(address));
  if (!peer) return peer;
  lower_to_route(SocketAddress(address.ip, address.ports[0]));
  return peer;
}

Result<void> UdpIo::remove_peer(PeerId peer) {
  if (!peers_.remove(peer)) {
    return fail(ErrorCode::kInvalidArgument, "udp: there is no peer " + std::to_string(peer));
  }
  return {};
}

std::string UdpIo::describe() const {
  return "udp: " + std::to_string(counters_.send_calls) + " send calls, " + std::to_string(counters_.receive_calls) +
         " receive calls, " + std::to_string(counters_.kernel_drops) + " dropped by the kernel, " +
         std::to_string(counters_.strangers) + " from strangers" +
         (counters_.fragmented > 0 ? ", " + std::to_string(counters_.fragmented) + " sent in fragments" : "");
}

}  // namespace clustar::transport::io::udp
