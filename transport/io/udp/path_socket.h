// One UDP socket with the options that a path needs, and what the machine tells about links and routes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "transport/base/file_descriptor.h"
#include "transport/base/result.h"
#include "transport/io/udp/address.h"

namespace clustar::transport::io::udp {

// IPv4 or IPv6 header without options, and UDP's.
constexpr std::size_t datagram_overhead(bool ipv6) { return ipv6 ? 40 + 8 : 20 + 8; }
// UDP payload of one datagram, or of one UDP_SEGMENT message: both are one IP packet to the kernel, of at most 65,535
// bytes (IPv6 does not count its own header, which is not used here).
constexpr std::size_t most_udp_payload(bool ipv6) { return 65535 - datagram_overhead(ipv6); }
// What every path carries: RFC 791's 576 as far as hosts go, RFC 8200 section 5.
constexpr std::size_t least_mtu(bool ipv6) { return ipv6 ? 1280 : 576; }

struct SocketSettings {
  std::size_t send_bytes = 0;  // SO_SNDBUF and SO_RCVBUF as asked for; the kernel caps them
  std::size_t receive_bytes = 0;
  bool gro = false;
};

struct PathSocket {
  FileDescriptor file;
  std::uint16_t port = 0;
  bool gso = false;  // the kernel knows UDP_SEGMENT
  bool gro = false;  // UDP_GRO was asked for and is on
};

// Non-blocking, close-on-exec, bound; never fragments before allow_fragments(); reports TOS and the kernel's drops with
// what it receives.
Result<PathSocket> open_path(const IpAddress& local, std::uint16_t port, const SocketSettings& settings);
// From now on what is longer than the route's MTU leaves as IP fragments; what is not still never becomes one.
bool allow_fragments(const FileDescriptor& socket, bool ipv6);
// From now on the kernel tells when what it received came; where it cannot, no wait is known.
void stamp_arrivals(const FileDescriptor& socket);
// Bytes of the kernel's bookkeeping (payload and overhead) that may wait in the socket.
std::size_t receive_buffer_of(const FileDescriptor& socket);

// Of what was sent: bytes that still wait in this host, with the kernel's bookkeeping.
std::uint64_t queued_bytes(const FileDescriptor& socket);

struct Link {
  std::size_t mtu = 1500;
  std::uint64_t rate_bps = 0;  // 0 = unknown
};
// Of the interface that has this address; the defaults when there is none.
Link link_of(const IpAddress& local);
// Largest IP packet that the route to a peer takes now, as the kernel knows it; 0 = unknown.
std::size_t route_mtu(const IpAddress& local, const SocketAddress& peer);

}  // namespace clustar::transport::io::udp
