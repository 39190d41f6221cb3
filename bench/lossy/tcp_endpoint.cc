#include "bench/lossy/tcp_endpoint.h"

#include <arpa/inet.h>
#include <fmt/format.h>

// The kernel's own header: glibc's tcp_info ends before the fields that are read here.
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "bench/lossy/kernel_tcp.h"
#include "mlt/core/classes.h"
#include "transport/base/file_descriptor.h"

namespace clustar::bench::lossy {
namespace {

constexpr int kMptcp = 262;
constexpr int kMptcpLevel = 284;  // SOL_MPTCP
constexpr int kMptcpInfo = 1;
// A system call moves at most this much, so that one connection cannot keep the thread from the others.
constexpr std::size_t kMaxPerCall = 1u << 18;

// A receiver is woken for this much, not for every packet; and for the end of a message, however little that is.
constexpr std::size_t kWakeAt = 1u << 17;
// While fewer bytes than SO_RCVLOWAT are unread the kernel acknowledges every second packet at once. On slower lines
// that costs less than a wake-up for each packet (measured: a quarter of the CPU at 200 Mbit/s), on faster ones, where
// packets come in crowds anyway, more (0 to 20 % at 1 Gbit/s).
constexpr std::uint64_t kWakeLateBelow = 500'000'000;  // bit/s

Error system_error(const std::string& what) {
  return {ErrorCode::kSystem, fmt::format("{}: {}", what, std::strerror(errno))};
}

// A kernel may be built without MPTCP, or have it switched off.
Error no_mptcp() {
  const bool absent = errno == EPROTONOSUPPORT || errno == ENOPROTOOPT || errno == EINVAL;
  Error error = system_error("an MPTCP socket, which needs CONFIG_MPTCP and the sysctl net.mptcp.enabled=1");
  if (absent) error.code = ErrorCode::kUnavailable;
  return error;
}

sockaddr_in address_of(const std::string& text, int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  inet_pton(AF_INET, text.c_str(), &address.sin_addr);
  return address;
}

template <class T>
bool set_option(int fd, int level, int name, const T& value) {
  return setsockopt(fd, level, name, &value, sizeof value) == 0;
}

Result<std::string> congestion_of(int fd) {
  std::array<char, 32> name{};
  socklen_t length = name.size() - 1;
  if (getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name.data(), &length) != 0) {
    return tl::unexpected(system_error("TCP_CONGESTION"));
  }
  return std::string(name.data());
}

}  // namespace

TcpEndpoint::TcpEndpoint(const Terms& terms, bool sends)
    : terms_(terms), sends_(sends), streams_(static_cast<std::size_t>(sends ? 1 : terms.senders)) {
  for (Stream& stream : streams_) {
    stream.memory.resize(terms.message_bytes * static_cast<std::size_t>(terms.window));
  }
}

// Options that an accepted socket inherits are set before it listens: its congestion control sends no data, but its
// handshake belongs to the arm, too.
Result<FileDescriptor> TcpEndpoint::open_socket() const {
  const int protocol = terms_.arm.carrier == Carrier::kMptcp ? kMptcp : IPPROTO_TCP;
  FileDescriptor fd(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, protocol));
  if (!fd) return tl::unexpected(protocol == kMptcp ? no_mptcp() : system_error("a TCP socket"));
  if (const auto set = set_congestion(fd.fd(), terms_.arm.congestion); !set) return tl::unexpected(set.error());
  if (!set_option(fd.fd(), IPPROTO_TCP, TCP_NODELAY, 1)) return tl::unexpected(system_error("TCP_NODELAY"));
  // The class of MLT's long reliable messages: below it a job beside MLT would wait for whatever the port can carry of
  // MLT's. Accepted sockets have their listener's.
  const int tos = mlt::Classes().dscp(mlt::PacketKind::kReliableBulk) << 2;
  if (!set_option(fd.fd(), IPPROTO_IP, IP_TOS, tos)) return tl::unexpected(system_error("IP_TOS"));
  return fd;
}

Result<std::vector<std::string>> TcpEndpoint::listen(const std::string& own_address) {
  auto fd = open_socket();
  if (!fd) return tl::unexpected(fd.error());
  sockaddr_in address = address_of(own_address, 0);
  socklen_t length = sizeof address;
  if (bind(fd->fd(), reinterpret_cast<sockaddr*>(&address), length) != 0 || ::listen(fd->fd(), 256) != 0 ||
      getsockname(fd->fd(), reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    return tl::unexpected(system_error("cannot listen on " + own_address));
  }
  listener_ = std::move(*fd);
  return std::vector<std::string>(streams_.size(), fmt::format("{}:{}", own_address, ntohs(address.sin_port)));
}

Result<void> TcpEndpoint::accept(SteadyClock::time_point deadline) {
  for (std::size_t accepted = 0; accepted < streams_.size();) {
    if (!proxy::wait_for(listener_.fd(), POLLIN, deadline)) {
      return fail(ErrorCode::kRemote, fmt::format("only {} of {} senders connected", accepted, streams_.size()));
    }
    FileDescriptor fd(accept4(listener_.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    // Gone again before it was looked at: no reason to give the others up.
    if (!fd && (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED)) continue;
    if (!fd) return tl::unexpected(system_error("cannot accept a sender"));
    std::array<std::byte, 1> index{};  // each connection says first whose it is
    bool timed_out = false;
    if (!proxy::read_all(fd.fd(), index, deadline, timed_out)) return fail(ErrorCode::kRemote, "a sender closed");
    const auto peer = std::to_integer<std::size_t>(index[0]);
    if (peer >= streams_.size() || streams_[peer].fd) continue;
    if (!set_option(fd.fd(), IPPROTO_TCP, TCP_NODELAY, 1)) return tl::unexpected(system_error("TCP_NODELAY"));
    streams_[peer].fd = std::move(fd);
    ++accepted;
  }
  return {};
}

Result<void> TcpEndpoint::connect(const std::string& where, int index, SteadyClock::time_point deadline) {
  const auto target = proxy::parse_host_port(where);
  if (!target) return tl::unexpected(target.error());
  auto fd = open_socket();
  if (!fd) return tl::unexpected(fd.error());
  const sockaddr_in address = address_of(target->host, std::stoi(target->port));
  int failure = 0;
  if (::connect(fd->fd(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    if (errno != EINPROGRESS || !proxy::wait_for(fd->fd(), POLLOUT, deadline)) {
      return tl::unexpected(system_error("cannot connect to " + where));
    }
    socklen_t length = sizeof failure;
    getsockopt(fd->fd(), SOL_SOCKET, SO_ERROR, &failure, &length);
  }
  if (failure != 0) return fail(ErrorCode::kRemote, "cannot connect to " + where + ": " + std::strerror(failure));
  const std::array<std::byte, 1> own{static_cast<std::byte>(index)};
  bool timed_out = false;
  if (!proxy::write_all(fd->fd(), own, deadline, timed_out)) return fail(ErrorCode::kRemote, "the receiver closed");
  streams_[0].fd = std::move(*fd);
  return {};
}

std::span<std::byte> TcpEndpoint::memory(int peer, int slot) {
  auto& memory = streams_[static_cast<std::size_t>(peer)].memory;
  return std::span(memory).subspan(static_cast<std::size_t>(slot) * terms_.message_bytes, terms_.message_bytes);
}

Result<void> TcpEndpoint::post(int peer, int slot, std::uint32_t) {
  streams_[static_cast<std::size_t>(peer)].messages.push_back({slot, 0});
  return {};
}

Result<void> TcpEndpoint::move(Stream& stream, int peer, std::vector<Ended>& ended) {
  while (!stream.messages.empty()) {
    Message& message = stream.messages.front();
    const std::size_t length = std::min(terms_.message_bytes - message.moved, kMaxPerCall);
    std::byte* const data = memory(peer, message.slot).data() + message.moved;
    const ssize_t n = sends_ ? ::send(stream.fd.fd(), data, length, MSG_DONTWAIT | MSG_NOSIGNAL)
                             : ::recv(stream.fd.fd(), data, length, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return {};
    if (n < 0) return tl::unexpected(system_error("TCP"));
    if (n == 0) return fail(ErrorCode::kRemote, "the peer closed its TCP connection");
    message.moved += static_cast<std::size_t>(n);
    if (message.moved == terms_.message_bytes) {
      ended.push_back({peer, message.slot});
      stream.messages.pop_front();
    } else if (static_cast<std::size_t>(n) < length) {
      return {};
    }
  }
  return {};
}

Result<void> TcpEndpoint::progress(std::vector<Ended>& ended) {
  for (std::size_t peer = 0; peer < streams_.size(); ++peer) {
    if (streams_[peer].messages.empty()) continue;
    if (auto ok = move(streams_[peer], static_cast<int>(peer), ended); !ok) return ok;
  }
  return {};
}

void TcpEndpoint::wake_late(Stream& stream) const {
  // Not all kernels with MPTCP wake its sockets when that much is there.
  if (sends_ || terms_.arm.carrier != Carrier::kTcp || terms_.rate_bps > kWakeLateBelow) return;
  const std::size_t wanted = std::min(terms_.message_bytes - stream.messages.front().moved, kWakeAt);
  if (wanted == stream.wakes_at) return;
  set_option(stream.fd.fd(), SOL_SOCKET, SO_RCVLOWAT, static_cast<int>(wanted));
  stream.wakes_at = wanted;
}

void TcpEndpoint::sleep() {
  std::array<pollfd, 256> polled;
  nfds_t count = 0;
  for (Stream& stream : streams_) {
    if (stream.messages.empty() || count == polled.size()) continue;
    wake_late(stream);
    polled[count++] = {stream.fd.fd(), static_cast<short>(sends_ ? POLLOUT : POLLIN), 0};
  }
  // Bounded, so that the caller sees its own deadline.
  const timespec limit{0, 20'000'000};
  ppoll(polled.data(), count, &limit, nullptr);
}

// Of the first connection: all are made alike.
Result<nlohmann::json> TcpEndpoint::facts() {
  const int fd = streams_[0].fd.fd();
  const auto congestion = congestion_of(fd);
  if (!congestion) return tl::unexpected(congestion.error());
  if (sends_ && *congestion != terms_.arm.congestion) {
    return fail(ErrorCode::kSystem,
                fmt::format("the socket uses {} instead of {}", *congestion, terms_.arm.congestion));
  }
  tcp_info info{};
  socklen_t length = sizeof info;
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return tl::unexpected(system_error("TCP_INFO"));
  const bool ecn = (info.tcpi_options & TCPI_OPT_ECN) != 0;
  if (terms_.arm.ecn && !ecn) {
    return fail(ErrorCode::kSystem, "the connection has no ECN although its namespace asks for it (tcp_ecn=1)");
  }
  nlohmann::json facts{{"congestion", *congestion}, {"ecn", ecn}, {"rto_us", info.tcpi_rto}, {"rtt_us", info.tcpi_rtt}};
  // MPTCP shows the first subflow's.
  if (terms_.arm.carrier != Carrier::kMptcp) facts["retransmitted_packets"] = info.tcpi_total_retrans;
  if (terms_.arm.carrier == Carrier::kMptcp) {
    std::array<std::byte, 256> mptcp{};  // mptcp_info; its first byte is the number of subflows beyond the first
    socklen_t size = mptcp.size();
    if (getsockopt(fd, kMptcpLevel, kMptcpInfo, mptcp.data(), &size) == 0 && size > 0) {
      facts["subflows"] = 1 + std::to_integer<int>(mptcp[0]);
    }
  }
  return facts;
}

}  // namespace clustar::bench::lossy
