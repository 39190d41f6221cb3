#include "transport/net/socket.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>

namespace clustar::transport::net {
namespace {

void set_option(int fd, int level, int name, int value) { setsockopt(fd, level, name, &value, sizeof value); }

Result<Socket> open_socket(bool ipv6, const SocketOptions& options) {
  Socket socket(::socket(ipv6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) return fail(ErrorCode::kSystem, "socket: " + describe_errno(errno));
  const int fd = socket.fd();
  set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  if (ipv6) set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1);
  if (options.notsent_bytes > 0) {
    set_option(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, static_cast<int>(options.notsent_bytes));
  }
  set_traffic_class(socket, options.traffic_class);
  const std::string& congestion = options.congestion;
  if (!congestion.empty() &&
      setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, congestion.data(), static_cast<socklen_t>(congestion.size())) != 0) {
    return fail(ErrorCode::kSystem,
                fmt::format("TCP_CONGESTION '{}': {}; see /proc/sys/net/ipv4/tcp_available_congestion_control",
                            congestion, describe_errno(errno)));
  }
  return socket;
}

IoResult classify(ssize_t result, bool reading) {
  if (result > 0) return {IoResult::Kind::kBytes, static_cast<std::size_t>(result), 0};
  if (result == 0) return {reading ? IoResult::Kind::kClosed : IoResult::Kind::kWouldBlock, 0, 0};
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return {IoResult::Kind::kWouldBlock, 0, 0};
  return {IoResult::Kind::kError, 0, errno};
}

}  // namespace

Address::Address(const Endpoint& endpoint) {
  if (endpoint.ipv6) {
    auto* in6 = reinterpret_cast<sockaddr_in6*>(&storage_);
    in6->sin6_family = AF_INET6;
    in6->sin6_port = htons(endpoint.port);
    std::memcpy(&in6->sin6_addr, endpoint.address.data(), 16);
  } else {
    auto* in4 = reinterpret_cast<sockaddr_in*>(&storage_);
    in4->sin_family = AF_INET;
    in4->sin_port = htons(endpoint.port);
    std::memcpy(&in4->sin_addr, endpoint.address.data(), 4);
  }
}

Address Address::of(const sockaddr* address) {
  Address result;
  std::memcpy(&result.storage_, address, address->sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in));
  return result;
}

socklen_t Address::length() const { return ipv6() ? sizeof(sockaddr_in6) : sizeof(sockaddr_in); }

Endpoint Address::endpoint() const {
  Endpoint endpoint;
  endpoint.ipv6 = ipv6();
  if (ipv6()) {
    const auto* in6 = reinterpret_cast<const sockaddr_in6*>(&storage_);
    endpoint.port = ntohs(in6->sin6_port);
    std::memcpy(endpoint.address.data(), &in6->sin6_addr, 16);
  } else {
    const auto* in4 = reinterpret_cast<const sockaddr_in*>(&storage_);
    endpoint.port = ntohs(in4->sin_port);
    std::memcpy(endpoint.address.data(), &in4->sin_addr, 4);
  }
  return endpoint;
}

Address Address::with_port(std::uint16_t port) const {
  Endpoint changed = endpoint();
  changed.port = port;
  return Address(changed);
}

std::uint32_t Address::host_number() const {
  const Endpoint all = endpoint();
  std::uint32_t hash = 2166136261u;  // FNV-1a
  for (const std::byte byte : all.address) hash = (hash ^ std::to_integer<std::uint32_t>(byte)) * 16777619u;
  return hash;
}

std::string Address::host() const {
  const Endpoint shown = endpoint();
  char text[INET6_ADDRSTRLEN] = "?";
  inet_ntop(shown.ipv6 ? AF_INET6 : AF_INET, shown.address.data(), text, sizeof text);
  return text;
}

std::string Address::to_string() const {
  return fmt::format(fmt::runtime(ipv6() ? "[{}]:{}" : "{}:{}"), host(), endpoint().port);
}

IoResult read_some(int fd, std::span<iovec> into) {
  return classify(::readv(fd, into.data(), static_cast<int>(into.size())), true);
}

IoResult read_some(int fd, std::span<std::byte> into) {
  return classify(::recv(fd, into.data(), into.size(), 0), true);
}

IoResult write_some(int fd, std::span<iovec> from) {
  msghdr message{};
  message.msg_iov = from.data();
  message.msg_iovlen = from.size();
  return classify(::sendmsg(fd, &message, MSG_NOSIGNAL), false);
}

IoResult write_some(int fd, std::span<const std::byte> from) {
  return classify(::send(fd, from.data(), from.size(), MSG_NOSIGNAL), false);
}

bool write_last(const Socket& socket, std::span<const std::byte> from, Duration limit) {
  constexpr int kMostWaits = 16;
  const auto end = std::chrono::steady_clock::now() + 10 * kMostWaits * limit;
  int room = 0;
  socklen_t length = sizeof room;
  const int wanted = static_cast<int>(std::min<std::size_t>(from.size(), std::numeric_limits<int>::max() / 2));
  // The kernel counts twice of what it is asked for: half is for its own bookkeeping.
  if (::getsockopt(socket.fd(), SOL_SOCKET, SO_SNDBUF, &room, &length) == 0 && room / 2 < wanted) {
    set_option(socket.fd(), SOL_SOCKET, SO_SNDBUF, wanted);
  }
  for (int waits = 0; !from.empty();) {
    const IoResult written = write_some(socket.fd(), from);
    if (written.kind == IoResult::Kind::kBytes) {
      from = from.subspan(written.bytes);
      waits = 0;
      continue;
    }
    if (written.kind != IoResult::Kind::kWouldBlock || ++waits > kMostWaits) return false;
    if (std::chrono::steady_clock::now() >= end) return false;
    pollfd watched{socket.fd(), POLLOUT, 0};
    ::poll(&watched, 1, static_cast<int>(std::chrono::duration_cast<std::chrono::milliseconds>(limit).count()));
  }
  return true;
}

Result<Socket> listen_on(const Address& address, const SocketOptions& options) {
  auto socket = open_socket(address.ipv6(), options);
  if (!socket) return socket;
  const Address any_port = address.with_port(0);
  if (::bind(socket->fd(), any_port.raw(), any_port.length()) != 0 || ::listen(socket->fd(), 1024) != 0) {
    return fail(ErrorCode::kSystem, fmt::format("listen on {}: {}", address.to_string(), describe_errno(errno)));
  }
  return socket;
}

Result<Socket> accept_from(const Socket& listener, Address* peer) {
  sockaddr_storage from{};
  socklen_t length = sizeof from;
  const int fd = ::accept4(listener.fd(), reinterpret_cast<sockaddr*>(&from), &length, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (fd < 0) {
    switch (errno) {
      // Errors of the connection that was about to be accepted, or nobody there: accept(2) says try again.
      case EAGAIN:
      case EINTR:
      case ECONNABORTED:
      case EPROTO:
      case ENETDOWN:
      case EHOSTUNREACH:
      case ENETUNREACH:
      case ETIMEDOUT: return Socket();
      default: return fail(ErrorCode::kSystem, "accept: " + describe_errno(errno));
    }
  }
  Socket socket(fd);
  set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  *peer = Address::of(reinterpret_cast<const sockaddr*>(&from));
  return socket;
}

Result<Socket> start_connect(const Address& local, const Address& remote, const SocketOptions& options) {
  auto socket = open_socket(remote.ipv6(), options);
  if (!socket) return socket;
  if (local.ipv6() == remote.ipv6()) {
    set_option(socket->fd(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1);
    const Address from = local.with_port(0);
    if (::bind(socket->fd(), from.raw(), from.length()) != 0) {
      return fail(ErrorCode::kSystem, fmt::format("bind to {}: {}", from.to_string(), describe_errno(errno)));
    }
  }
  if (::connect(socket->fd(), remote.raw(), remote.length()) != 0 && errno != EINPROGRESS) {
    return fail(ErrorCode::kRemote, fmt::format("connect to {}: {}", remote.to_string(), describe_errno(errno)));
  }
  return socket;
}

namespace {

// glibc's tcp_info ends before what this needs; the kernel's only grows (linux/tcp.h), and says how much it filled.
class TcpInfo {
 public:
  explicit TcpInfo(const Socket& socket) {
    if (!socket || ::getsockopt(socket.fd(), IPPROTO_TCP, TCP_INFO, bytes_.data(), &length_) != 0) length_ = 0;
  }
  std::uint32_t word(std::size_t at) const {
    std::uint32_t value = 0;
    if (at + sizeof value <= length_) std::memcpy(&value, bytes_.data() + at, sizeof value);
    return value;
  }

 private:
  std::array<std::byte, 256> bytes_{};
  socklen_t length_ = sizeof bytes_;
};

}  // namespace

TcpCounts tcp_counts(const Socket& socket) {
  constexpr std::size_t kTotalRetransAt = 100, kDeliveredCeAt = 196;
  const TcpInfo info(socket);
  return {info.word(kTotalRetransAt), info.word(kDeliveredCeAt)};
}

Duration shortest_round_trip(const Socket& socket) {
  constexpr std::size_t kMinRttAt = 148;
  constexpr std::uint32_t kUnknown = 0xffffffff;
  const std::uint32_t microseconds = TcpInfo(socket).word(kMinRttAt);
  return std::chrono::microseconds(microseconds == kUnknown ? 0 : microseconds);
}

std::uint64_t unsent_bytes(const Socket& socket) {
  int bytes = 0;
  return ::ioctl(socket.fd(), SIOCOUTQNSD, &bytes) == 0 && bytes > 0 ? static_cast<std::uint64_t>(bytes) : 0;
}

void set_traffic_class(const Socket& socket, int traffic_class) {
  constexpr int kDscp = 0xfc;  // the other two bits are ECN's, which are the kernel's
  if (traffic_class < 0) return;
  // One of them is of another family, and refused.
  set_option(socket.fd(), IPPROTO_IP, IP_TOS, traffic_class & kDscp);
  set_option(socket.fd(), IPPROTO_IPV6, IPV6_TCLASS, traffic_class & kDscp);
}

ConnectState connect_result(const Socket& socket, int* error) {
  pollfd ready{socket.fd(), POLLOUT, 0};
  if (::poll(&ready, 1, 0) <= 0) return ConnectState::kPending;
  socklen_t length = sizeof *error;
  *error = 0;
  getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, error, &length);
  return *error == 0 ? ConnectState::kConnected : ConnectState::kFailed;
}

void probe_when_idle(const Socket& socket) {
  set_option(socket.fd(), SOL_SOCKET, SO_KEEPALIVE, 1);
  // Many probes: a full switch buffer drops such packets, too, and a few lost ones in a row are no dead host.
  constexpr int kIdleSeconds = 5, kIntervalSeconds = 1, kProbes = 20;
  set_option(socket.fd(), IPPROTO_TCP, TCP_KEEPIDLE, kIdleSeconds);
  set_option(socket.fd(), IPPROTO_TCP, TCP_KEEPINTVL, kIntervalSeconds);
  set_option(socket.fd(), IPPROTO_TCP, TCP_KEEPCNT, kProbes);
}

void detect_dead_host(const Socket& socket) {
  probe_when_idle(socket);
  set_option(socket.fd(), IPPROTO_TCP, TCP_USER_TIMEOUT, 25000);
}

Address local_address(const Socket& socket) {
  sockaddr_storage bound{};
  socklen_t length = sizeof bound;
  getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&bound), &length);
  return Address::of(reinterpret_cast<const sockaddr*>(&bound));
}

Result<void> fill_random(std::span<std::byte> out) {
  if (::getrandom(out.data(), out.size(), 0) != static_cast<ssize_t>(out.size())) {
    return fail(ErrorCode::kSystem, "getrandom: " + describe_errno(errno));
  }
  return {};
}

}  // namespace clustar::transport::net
