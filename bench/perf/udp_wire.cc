#include "bench/perf/udp_wire.h"

#include <arpa/inet.h>
#include <endian.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/udp.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <utility>

#ifndef UDP_GRO
#define UDP_GRO 104
#endif

namespace clustar::bench::perf {
namespace {

constexpr std::uint32_t kMagic = 0x434c5550;
constexpr int kSocketBuffer = 8 << 20;
constexpr std::uint64_t kMaxWindow = 1u << 20;
constexpr auto kLate = std::chrono::milliseconds(2);        // credit that a mark asks for
constexpr auto kPatience = std::chrono::milliseconds(500);  // for a peer at the end of a sample

void set_option(int fd, int level, int name, int value) { setsockopt(fd, level, name, &value, sizeof value); }

int get_option(int fd, int level, int name) {
  int value = 0;
  socklen_t length = sizeof value;
  return getsockopt(fd, level, name, &value, &length) == 0 ? value : 0;
}

// With the right to do so past the system's limit, otherwise up to it.
void set_buffers(int fd) {
  for (const auto& [forced, usual] : {std::pair(SO_SNDBUFFORCE, SO_SNDBUF), {SO_RCVBUFFORCE, SO_RCVBUF}}) {
    const int bytes = kSocketBuffer;
    if (setsockopt(fd, SOL_SOCKET, forced, &bytes, sizeof bytes) != 0) set_option(fd, SOL_SOCKET, usual, bytes);
  }
}

struct Address {
  sockaddr_storage raw{};
  socklen_t length = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&raw); }
};

Result<Address> resolve(const std::string& host, const std::string& port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int status = getaddrinfo(host.c_str(), port.c_str(), &hints, &list);
  if (status != 0) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("UDP limit: '{}': {}", host, gai_strerror(status)));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> guard(list, freeaddrinfo);
  Address address;
  std::memcpy(&address.raw, list->ai_addr, list->ai_addrlen);
  address.length = list->ai_addrlen;
  return address;
}

std::uint64_t load64(const std::byte* from) {
  std::uint64_t value = 0;
  std::memcpy(&value, from, sizeof value);
  return be64toh(value);
}

void write_front(std::byte* into, std::uint8_t kind, std::uint64_t value) {
  const std::uint32_t magic = htobe32(kMagic);
  const std::uint64_t number = htobe64(value);
  std::memcpy(into, &magic, sizeof magic);
  into[4] = static_cast<std::byte>(kind);
  std::memcpy(into + 8, &number, sizeof number);
}

bool is_ours(const std::byte* packet, std::size_t length) {
  std::uint32_t magic = 0;
  if (length < 16) return false;
  std::memcpy(&magic, packet, sizeof magic);
  return be32toh(magic) == kMagic;
}

tl::unexpected<Error> system_error(const char* what) {
  return fail(ErrorCode::kSystem, fmt::format("UDP limit: {}: {}", what, std::strerror(errno)));
}

}  // namespace

std::size_t UdpWire::packet_bytes(std::size_t mtu, bool ipv6) { return std::min(mtu - (ipv6 ? 48 : 28), kMaxMessage); }

UdpWire::UdpWire(int rank, std::string address) : rank_(rank), address_(std::move(address)) {}

Result<void> UdpWire::open_socket(int family) {
  fd_ = FileDescriptor(socket(family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd_) return system_error("socket");
  ipv6_ = family == AF_INET6;
  set_buffers(fd_.fd());
  // Too long a packet is an error here and not fragments on the wire.
  if (ipv6_) {
    set_option(fd_.fd(), IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_DO);
  } else {
    set_option(fd_.fd(), IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO);
  }
  set_option(fd_.fd(), SOL_UDP, UDP_GRO, 1);
  return {};
}

Result<std::vector<std::string>> UdpWire::listen(int count) {
  if (rank_ != 0) return std::vector<std::string>(static_cast<std::size_t>(count));
  auto address = resolve(address_, "0");
  if (!address) return tl::unexpected(address.error());
  if (auto ok = open_socket(address->raw.ss_family); !ok) return tl::unexpected(ok.error());
  if (bind(fd_.fd(), address->get(), address->length) != 0) return system_error("bind");
  if (getrandom(&token_, sizeof token_, 0) != sizeof token_) return system_error("getrandom");
  if (getsockname(fd_.fd(), reinterpret_cast<sockaddr*>(&address->raw), &address->length) != 0) {
    return system_error("getsockname");
  }
  // The port lies at the same place in both families.
  const int port = ntohs(reinterpret_cast<const sockaddr_in*>(&address->raw)->sin_port);
  const std::string host = ipv6_ ? "[" + address_ + "]" : address_;
  return std::vector<std::string>(static_cast<std::size_t>(count), fmt::format("{:016x}@{}:{}", token_, host, port));
}

Result<void> UdpWire::connect(const std::vector<std::string>& handles, Clock::time_point deadline) {
  if (auto ok = rank_ == 0 ? accept_peer(deadline) : greet(handles.at(0), deadline); !ok) return ok;
  return measure_path();
}

Result<void> UdpWire::accept_peer(Clock::time_point deadline) {
  std::array<std::byte, 64> packet;
  for (;;) {
    if (!proxy::wait_for(fd_.fd(), POLLIN, deadline)) {
      return fail(ErrorCode::kRemote, "the sender of the UDP limit did not come in time; does a firewall drop UDP?");
    }
    Address from;
    from.length = sizeof from.raw;
    const ssize_t n =
        recvfrom(fd_.fd(), packet.data(), packet.size(), 0, reinterpret_cast<sockaddr*>(&from.raw), &from.length);
    if (n < 0 || !is_ours(packet.data(), static_cast<std::size_t>(n))) continue;
    if (packet[4] != static_cast<std::byte>(Kind::kHello) || load64(packet.data() + 8) != token_) continue;
    if (::connect(fd_.fd(), from.get(), from.length) != 0) return system_error("connect");
    break;
  }
  // Nobody polls here between now and the first sample, so an answer that is lost would not be repeated.
  for (int i = 0; i < 5; ++i) say(Kind::kWelcome, token_);
  return {};
}

Result<void> UdpWire::greet(const std::string& handle, Clock::time_point deadline) {
  const std::size_t at = handle.find('@');
  const auto [end, error] = std::from_chars(handle.data(), handle.data() + handle.size(), token_, 16);
  if (at == std::string::npos || error != std::errc() || end != handle.data() + at) {
    return fail(ErrorCode::kRemote, "UDP limit: the receiver's handle makes no sense; is it of the same version?");
  }
  const auto target = proxy::parse_host_port(handle.substr(at + 1));
  if (!target) return tl::unexpected(target.error());
  const auto address = resolve(target->host, target->port);
  if (!address) return tl::unexpected(address.error());
  if (auto ok = open_socket(address->raw.ss_family); !ok) return ok;
  if (::connect(fd_.fd(), address->get(), address->length) != 0) return system_error("connect");
  std::array<std::byte, 64> packet;
  while (Clock::now() < deadline) {
    say(Kind::kHello, token_);
    if (!proxy::wait_for(fd_.fd(), POLLIN, std::min(deadline, Clock::now() + std::chrono::milliseconds(20)))) continue;
    const ssize_t n = recv(fd_.fd(), packet.data(), packet.size(), 0);
    if (n < 0 || !is_ours(packet.data(), static_cast<std::size_t>(n))) continue;
    if (packet[4] == static_cast<std::byte>(Kind::kWelcome) && load64(packet.data() + 8) == token_) return {};
  }
  return fail(ErrorCode::kRemote, "UDP limit: the receiver does not answer; does a firewall drop UDP?");
}

Result<void> UdpWire::measure_path() {
  const int mtu = ipv6_ ? get_option(fd_.fd(), IPPROTO_IPV6, IPV6_MTU) : get_option(fd_.fd(), IPPROTO_IP, IP_MTU);
  if (mtu < 256) return fail(ErrorCode::kSystem, fmt::format("UDP limit: the path's MTU is {}", mtu));
  payload_ = packet_bytes(static_cast<std::size_t>(mtu), ipv6_) - kHeaderBytes;
  // The kernel counts a packet's memory, which for short ones is a multiple of its length.
  const int buffer = get_option(fd_.fd(), SOL_SOCKET, SO_RCVBUF);
  window_ = std::clamp<std::uint64_t>(static_cast<std::uint64_t>(buffer) / 4, 32 * 1024, kMaxWindow);
  for (auto& header : headers_) write_front(header.data(), static_cast<std::uint8_t>(Kind::kData), 0);
  return {};
}

Result<void> UdpWire::attach(const Memory& send, const Memory& receive) {
  send_memory_ = send.data();
  receive_memory_ = receive.data();
  receive_size_ = receive.size();
  receive_at_ = 0;
  if (receive_size_ < kReceives * kReceiveBytes) {
    small_.resize(kReceives * kReceiveBytes);
    receive_memory_ = small_.data();
    receive_size_ = small_.size();
  }
  return {};
}

Result<void> UdpWire::close() {
  fd_.close();
  return {};
}

bool UdpWire::say(Kind kind, std::uint64_t value) {
  std::array<std::byte, kControlBytes> packet{};
  write_front(packet.data(), static_cast<std::uint8_t>(kind), value);
  return send(fd_.fd(), packet.data(), packet.size(), MSG_DONTWAIT | MSG_NOSIGNAL) > 0;
}

Result<UdpWire::Request*> UdpWire::take(bool sends, std::size_t bytes) {
  const auto free = std::find_if(requests_.begin(), requests_.end(), [](const Request& r) { return !r.in_use; });
  if (free == requests_.end()) return nullptr;
  *free = Request{nullptr, bytes, 0, 0, sends, true};
  return &*free;
}

Result<void*> UdpWire::post_send(int, std::size_t offset, std::size_t bytes) {
  const auto request = take(true, bytes);
  if (!request) return tl::unexpected(request.error());
  if (*request == nullptr) return nullptr;
  (*request)->data = send_memory_ + offset;
  sends_.push_back(*request);
  if (sends_.size() == 1) {
    if (auto ok = send_some(); !ok) return tl::unexpected(ok.error());
  }
  return static_cast<void*>(*request);
}

Result<void*> UdpWire::post_receive(int, std::size_t, std::size_t bytes) {
  const auto request = take(false, bytes);
  if (!request) return tl::unexpected(request.error());
  if (*request == nullptr) return nullptr;
  posted_ += bytes;
  (*request)->end = posted_;
  return static_cast<void*>(*request);
}

// Hands `length` bytes of the request to the kernel as one message of packets. How many it took: all, or 0.
Result<ssize_t> UdpWire::send_batch(const Request& request, std::size_t length) {
  std::size_t used = 0;
  std::size_t packets = 0;
  for (std::size_t done = 0; done < length; ++packets) {
    const std::size_t part = std::min(length - done, payload_);
    const std::uint64_t position = htobe64(sent_ + done);
    std::memcpy(headers_[packets].data() + 8, &position, sizeof position);
    pieces_[used++] = {headers_[packets].data(), kHeaderBytes};
    pieces_[used++] = {const_cast<std::byte*>(request.data + request.moved + done), part};
    done += part;
  }
  msghdr message{};
  message.msg_iov = pieces_.data();
  message.msg_iovlen = used;
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(std::uint16_t))> control{};
  if (packets > 1) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* segment = CMSG_FIRSTHDR(&message);
    segment->cmsg_level = SOL_UDP;
    segment->cmsg_type = UDP_SEGMENT;
    segment->cmsg_len = CMSG_LEN(sizeof(std::uint16_t));
    const auto size = static_cast<std::uint16_t>(kHeaderBytes + payload_);
    std::memcpy(CMSG_DATA(segment), &size, sizeof size);
  }
  if (sendmsg(fd_.fd(), &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return static_cast<ssize_t>(length);
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR || errno == ENOBUFS || errno == ENOMEM) return 0;
  if (packets > 1 && (errno == EIO || errno == EINVAL)) {  // this path cannot cut
    gso_ = false;
    return 0;
  }
  return fail(ErrorCode::kRemote, fmt::format("UDP limit: send: {}", std::strerror(errno)));
}

Result<bool> UdpWire::send_some() {
  bool any = false;
  const std::size_t most = gso_ ? std::min(kSegments, kMaxMessage / (kHeaderBytes + payload_)) : 1;
  while (!sends_.empty() && sent_ - credited_ < window_) {
    Request& request = *sends_.front();
    const std::size_t length = std::min(request.size - request.moved, most * payload_);
    const auto took = send_batch(request, length);
    if (!took) return tl::unexpected(took.error());
    if (*took == 0) return any;
    any = true;
    sent_ += length;
    request.moved += length;
    if (request.moved == request.size) sends_.pop_front();
  }
  return any;
}

void UdpWire::lose_until(std::uint64_t position) {
  if (position <= expected_) return;
  loss_.bytes += position - expected_;
  loss_.packets += (position - expected_ + payload_ - 1) / payload_;
  expected_ = position;
}

void UdpWire::take_packet(const std::byte* packet, std::size_t length) {
  if (!is_ours(packet, length)) return;
  const std::uint64_t value = load64(packet + 8);
  switch (static_cast<Kind>(packet[4])) {
    case Kind::kData: {
      if (length <= kHeaderBytes) return;
      const std::uint64_t bytes = length - kHeaderBytes;
      if (value < expected_) {  // late, and counted as lost: it arrived after all
        loss_.bytes -= std::min(loss_.bytes, bytes);
        loss_.packets -= std::min<std::uint64_t>(loss_.packets, 1);
        return;
      }
      lose_until(value);
      expected_ = value + bytes;
      return;
    }
    case Kind::kCredit: credited_ = std::clamp(value, credited_, sent_); return;
    case Kind::kMark:
      lose_until(value);
      if (say(Kind::kCredit, expected_)) said_ = expected_;
      return;
    default: return;  // a greeting that came twice
  }
}

// Length of the packets that the kernel joined in a message; 0: it joined none.
std::size_t joined(msghdr& message) {
  for (cmsghdr* one = CMSG_FIRSTHDR(&message); one != nullptr; one = CMSG_NXTHDR(&message, one)) {
    if (one->cmsg_level != SOL_UDP || one->cmsg_type != UDP_GRO) continue;
    int size = 0;
    std::memcpy(&size, CMSG_DATA(one), sizeof size);
    return size > 0 ? static_cast<std::size_t>(size) : 0;
  }
  return 0;
}

// One system call, so that sending has its turn. Any message may be a joined one, and so each needs room for it.
Result<bool> UdpWire::receive_some() {
  if (receive_size_ - receive_at_ < kReceives * kReceiveBytes) receive_at_ = 0;
  std::byte* const into = receive_memory_ + receive_at_;
  std::array<iovec, kReceives> pieces;
  std::array<mmsghdr, kReceives> messages{};
  struct alignas(cmsghdr) MessageControl {
    std::array<std::byte, CMSG_SPACE(sizeof(int))> bytes;
  };
  std::array<MessageControl, kReceives> controls;
  for (std::size_t i = 0; i < kReceives; ++i) {
    pieces[i] = {into + i * kReceiveBytes, kReceiveBytes};
    messages[i].msg_hdr.msg_iov = &pieces[i];
    messages[i].msg_hdr.msg_iovlen = 1;
    messages[i].msg_hdr.msg_control = controls[i].bytes.data();
    messages[i].msg_hdr.msg_controllen = controls[i].bytes.size();
  }
  const int n = recvmmsg(fd_.fd(), messages.data(), kReceives, MSG_DONTWAIT, nullptr);
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return false;
  if (n < 0) return fail(ErrorCode::kRemote, fmt::format("UDP limit: the peer is gone: {}", std::strerror(errno)));
  std::size_t all = 0;
  for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i) {
    const std::size_t length = messages[i].msg_len;
    const std::size_t segment = joined(messages[i].msg_hdr) > 0 ? joined(messages[i].msg_hdr) : length;
    const auto* const message = static_cast<const std::byte*>(pieces[i].iov_base);
    for (std::size_t at = 0; at < length; at += segment) take_packet(message + at, std::min(segment, length - at));
    if (length > kControlBytes) all += length;
  }
  // Whole cache lines. So packets that lie apart leave no memory out, the next round around.
  receive_at_ += (all + 63) / 64 * 64;
  if (expected_ - said_ >= window_ / 4 && say(Kind::kCredit, expected_)) said_ = expected_;
  return n > 0;
}

Result<bool> UdpWire::progress() {
  const auto received = receive_some();
  if (!received) return received;
  const auto sent = send_some();
  if (!sent) return sent;
  const bool moved = *received || *sent;
  if (moved) {
    idle_turns_ = 0;
  } else {
    idle();
  }
  return moved;
}

void UdpWire::idle() {
  // The clock is read rarely, as in the drivers.
  if (idle_turns_++ % 32 != 0 || sent_ == credited_) return;
  const auto now = Clock::now();
  if (idle_turns_ == 1) moved_at_ = now;
  if (now - moved_at_ < kLate) return;
  moved_at_ = now;
  say(Kind::kMark, sent_);
}

Result<Tested> UdpWire::test(void* handle) {
  auto& request = *static_cast<Request*>(handle);
  const auto done = [&] { return request.sends ? request.moved == request.size : expected_ >= request.end; };
  if (!done()) {
    if (auto ok = progress(); !ok) return tl::unexpected(ok.error());
    if (!done()) return Tested{};
  }
  request.in_use = false;
  return Tested{true, request.size};
}

Loss UdpWire::take_loss() { return std::exchange(loss_, Loss{}); }

// The peer that is done first must not take the answers with it that the other waits for, and neither can know that
// its last one arrived: so each says what it has at once, and waits with a bound.
Result<bool> UdpWire::settled() {
  if (!settling_) {
    settling_ = true;
    settle_until_ = Clock::now() + kPatience;
    if (say(Kind::kCredit, expected_)) said_ = expected_;
  }
  const std::uint64_t before = credited_;
  if (auto ok = progress(); !ok) return tl::unexpected(ok.error());
  const auto now = Clock::now();
  if (credited_ != before) settle_until_ = now + kPatience;
  if (credited_ < sent_ && now < settle_until_) return false;
  settling_ = false;
  return true;
}

}  // namespace clustar::bench::perf
