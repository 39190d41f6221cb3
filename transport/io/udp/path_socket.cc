#include "transport/io/udp/path_socket.h"

#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/udp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <string>

namespace clustar::transport::io::udp {
namespace {

bool set_option(int fd, int level, int name, int value) {
  return setsockopt(fd, level, name, &value, sizeof value) == 0;
}

int get_option(int fd, int level, int name, int otherwise) {
  int value = 0;
  socklen_t length = sizeof value;
  return getsockopt(fd, level, name, &value, &length) == 0 ? value : otherwise;
}

// With the right to do so past the system's limit, otherwise up to it.
void set_buffer(int fd, int forced, int usual, std::size_t bytes) {
  const int wanted = static_cast<int>(std::min<std::size_t>(bytes, INT_MAX / 2));
  if (wanted > 0 && !set_option(fd, SOL_SOCKET, forced, wanted)) set_option(fd, SOL_SOCKET, usual, wanted);
}

Result<FileDescriptor> udp_socket(bool ipv6) {
  FileDescriptor file(::socket(ipv6 ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!file) return fail(ErrorCode::kSystem, "udp: socket: " + describe_errno(errno));
  if (ipv6) set_option(file.fd(), IPPROTO_IPV6, IPV6_V6ONLY, 1);
  return file;
}

// A datagram that does not fit is refused here with EMSGSIZE instead of being cut into fragments, of which the loss of
// one would lose all.
bool never_fragment(int fd, bool ipv6) {
  if (!ipv6) return set_option(fd, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO);
  return set_option(fd, IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_DO) &&
         set_option(fd, IPPROTO_IPV6, IPV6_DONTFRAG, 1);
}

}  // namespace

Result<PathSocket> open_path(const IpAddress& local, std::uint16_t port, const SocketSettings& settings) {
  auto file = udp_socket(local.ipv6);
  if (!file) return tl::unexpected(file.error());
  PathSocket path{std::move(*file)};
  const int fd = path.file.fd();
  set_buffer(fd, SO_SNDBUFFORCE, SO_SNDBUF, settings.send_bytes);
  set_buffer(fd, SO_RCVBUFFORCE, SO_RCVBUF, settings.receive_bytes);
  const bool tos =
      local.ipv6 ? set_option(fd, IPPROTO_IPV6, IPV6_RECVTCLASS, 1) : set_option(fd, IPPROTO_IP, IP_RECVTOS, 1);
  if (!never_fragment(fd, local.ipv6) || !tos) {
    return fail(ErrorCode::kUnavailable,
                "udp: the kernel refuses MTU discovery or the report of DSCP and ECN: " + describe_errno(errno));
  }
  set_option(fd, SOL_SOCKET, SO_RXQ_OVFL, 1);  // only a counter: where it is missing, drops are not counted
  path.gso = set_option(fd, SOL_UDP, UDP_SEGMENT, 0);
  path.gro = settings.gro && set_option(fd, SOL_UDP, UDP_GRO, 1);
  SocketAddress bound(local, port);
  if (::bind(fd, bound.raw(), bound.length()) != 0) {
    return fail(ErrorCode::kSystem,
                "udp: bind to " + local.to_string() + " port " + std::to_string(port) + ": " + describe_errno(errno));
  }
  socklen_t length = SocketAddress::capacity();
  if (::getsockname(fd, bound.raw(), &length) != 0) {
    return fail(ErrorCode::kSystem, "udp: getsockname: " + describe_errno(errno));
  }
  path.port = bound.port();
  return path;
}

bool allow_fragments(const FileDescriptor& socket, bool ipv6) {
  const int fd = socket.fd();
  if (!ipv6) return set_option(fd, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_WANT);
  return set_option(fd, IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_WANT) &&
         set_option(fd, IPPROTO_IPV6, IPV6_DONTFRAG, 0);
}

void stamp_arrivals(const FileDescriptor& socket) { set_option(socket.fd(), SOL_SOCKET, SO_TIMESTAMPNS, 1); }

std::size_t receive_buffer_of(const FileDescriptor& socket) {
  return static_cast<std::size_t>(std::max(get_option(socket.fd(), SOL_SOCKET, SO_RCVBUF, 0), 0));
}

std::uint64_t queued_bytes(const FileDescriptor& socket) {
  int bytes = 0;
  return ioctl(socket.fd(), SIOCOUTQ, &bytes) == 0 && bytes > 0 ? static_cast<std::uint64_t>(bytes) : 0;
}

Link link_of(const IpAddress& local) {
  Link link;
  const std::string name = interface_of(local);
  const auto probe = udp_socket(local.ipv6);
  if (name.empty() || !probe) return link;
  ifreq request{};
  std::strncpy(request.ifr_name, name.c_str(), IFNAMSIZ - 1);
  if (::ioctl(probe->fd(), SIOCGIFMTU, &request) == 0 && request.ifr_mtu > 0) {
    link.mtu = static_cast<std::size_t>(request.ifr_mtu);
  }
  ethtool_cmd command{};
  command.cmd = ETHTOOL_GSET;
  request.ifr_data = reinterpret_cast<char*>(&command);
  if (::ioctl(probe->fd(), SIOCETHTOOL, &request) == 0) {
    const std::uint32_t mbps = ethtool_cmd_speed(&command);
    if (mbps != 0 && mbps != static_cast<std::uint32_t>(SPEED_UNKNOWN)) link.rate_bps = mbps * 1'000'000ull;
  }
  return link;
}

std::size_t route_mtu(const IpAddress& local, const SocketAddress& peer) {
  const auto probe = udp_socket(local.ipv6);
  if (!probe) return 0;
  // Only a connected socket tells the MTU of its route; connecting sends nothing.
  const SocketAddress from(local, 0);
  if (::bind(probe->fd(), from.raw(), from.length()) != 0) return 0;
  if (::connect(probe->fd(), peer.raw(), peer.length()) != 0) return 0;
  const int mtu =
      local.ipv6 ? get_option(probe->fd(), IPPROTO_IPV6, IPV6_MTU, 0) : get_option(probe->fd(), IPPROTO_IP, IP_MTU, 0);
  return static_cast<std::size_t>(std::max(mtu, 0));
}

}  // namespace clustar::transport::io::udp
