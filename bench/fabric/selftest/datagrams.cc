#include "bench/fabric/selftest/datagrams.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <net/if_arp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <limits>

namespace clustar::bench::fabric::selftest {
namespace {

constexpr int kReceiveBytes = 512 << 20;  // what waits while other processes have the cores
constexpr std::int64_t kSendBoundNs = 5'000'000'000;

sockaddr_in address_of(const Fabric& fabric, int host, std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  inet_pton(AF_INET, fabric.address(host).c_str(), &address.sin_addr);
  return address;
}

Result<void> system_error(const char* what) {
  return fail(ErrorCode::kSystem, fmt::format("{}: {}", what, std::strerror(errno)));
}

Result<void> prepare(int fd, const sockaddr_in& own) {
  const int on = 1;
  const bool ok = fd >= 0 && setsockopt(fd, IPPROTO_IP, IP_RECVTOS, &on, sizeof(on)) == 0 &&
                  setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof(on)) == 0 &&
                  setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &kReceiveBytes, sizeof(kReceiveBytes)) == 0 &&
                  bind(fd, reinterpret_cast<const sockaddr*>(&own), sizeof(own)) == 0;
  return ok ? Result<void>() : system_error("a UDP socket for the probes");
}

std::int64_t clock_ns(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

// How far the wall clock, which stamps packets, is ahead of the monotonic one. The narrowest of a few readings, since a
// thread may lose its core between two of them.
std::int64_t wall_ahead_ns() {
  std::int64_t ahead = 0, narrowest = std::numeric_limits<std::int64_t>::max();
  for (int i = 0; i < 8 && narrowest > 300; ++i) {
    const std::int64_t before = now_ns(), wall = clock_ns(CLOCK_REALTIME), after = now_ns();
    if (after - before >= narrowest) continue;
    narrowest = after - before;
    ahead = wall - (before + narrowest / 2);
  }
  return ahead;
}

}  // namespace

std::int64_t now_ns() { return clock_ns(CLOCK_MONOTONIC); }

Fd::~Fd() {
  if (fd_ >= 0) close(fd_);
}

Result<Datagrams> Datagrams::open(const Fabric& fabric, int host, std::uint16_t port) {
  Datagrams made;
  const auto done = run_inside(fabric.namespace_of(host), [&]() -> Result<void> {
    made.socket_ = Fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_in own = address_of(fabric, host, port);
    socklen_t length = sizeof(own);
    if (const auto ok = prepare(made.fd(), own); !ok) return ok;
    if (getsockname(made.fd(), reinterpret_cast<sockaddr*>(&own), &length) != 0) return system_error("getsockname");
    made.port_ = ntohs(own.sin_port);
    return {};
  });
  if (!done) return tl::unexpected(done.error());
  return made;
}

Result<void> Datagrams::send(const Fabric& fabric, int host, std::uint16_t port, std::uint8_t tos,
                             std::uint64_t frame_bytes, std::uint32_t sequence) {
  if (tos != tos_) {
    tos_ = tos;
    if (setsockopt(fd(), IPPROTO_IP, IP_TOS, &tos_, sizeof(tos_)) != 0) return system_error("IP_TOS");
  }
  block_.resize(std::max<std::size_t>(block_.size(), frame_bytes));
  std::memcpy(block_.data(), &sequence, sizeof(sequence));
  const sockaddr_in to = address_of(fabric, host, port);
  const std::int64_t until = now_ns() + kSendBoundNs;
  while (sendto(fd(), block_.data(), frame_bytes - kHeaderBytes, 0, reinterpret_cast<const sockaddr*>(&to),
                sizeof(to)) < 0) {
    if ((errno != ENOBUFS && errno != EAGAIN && errno != EINTR) || now_ns() > until) return system_error("a probe");
    poll(nullptr, 0, 1);
  }
  return {};
}

void Datagrams::take(std::vector<Arrival>& all, int timeout_ms) const {
  std::array<char, 64> start{};
  alignas(cmsghdr) std::array<char, 128> control{};
  // Again each time: only a packet that waits here while somebody sets the wall clock gets a wrong time.
  std::int64_t ahead = wall_ahead_ns();
  for (bool waited = timeout_ms <= 0;;) {
    iovec into{start.data(), start.size()};
    msghdr message{};
    message.msg_iov = &into;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    const ssize_t n = recvmsg(fd(), &message, MSG_DONTWAIT | MSG_TRUNC);
    if (n < 0) {
      if (waited) return;
      pollfd readable{fd(), POLLIN, 0};
      poll(&readable, 1, timeout_ms);
      ahead = wall_ahead_ns();
      waited = true;
      continue;
    }
    waited = true;
    Arrival one;
    one.frame_bytes = static_cast<std::uint32_t>(n) + kHeaderBytes;
    std::memcpy(&one.sequence, start.data(), sizeof(one.sequence));
    for (cmsghdr* head = CMSG_FIRSTHDR(&message); head != nullptr; head = CMSG_NXTHDR(&message, head)) {
      if (head->cmsg_level == IPPROTO_IP && head->cmsg_type == IP_TOS) one.tos = *CMSG_DATA(head);
      if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_TIMESTAMPNS) continue;
      timespec at{};
      std::memcpy(&at, CMSG_DATA(head), sizeof(at));
      one.at_ns = static_cast<std::int64_t>(at.tv_sec) * 1'000'000'000 + at.tv_nsec - ahead;
    }
    all.push_back(one);
  }
}

Result<void> remember_neighbour(const Fabric& fabric, int host, int other) {
  return run_inside(fabric.namespace_of(host), [&]() -> Result<void> {
    const Fd fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    arpreq entry{};
    const sockaddr_in address = address_of(fabric, other, 0);
    std::memcpy(&entry.arp_pa, &address, sizeof(address));
    entry.arp_ha.sa_family = ARPHRD_ETHER;
    std::array<unsigned, 6> mac{};
    if (std::sscanf(host_mac(other).c_str(), "%x:%x:%x:%x:%x:%x", mac.data(), &mac[1], &mac[2], &mac[3], &mac[4],
                    &mac[5]) != 6) {
      return fail(ErrorCode::kInternal, "a MAC address without six parts");
    }
    for (std::size_t i = 0; i < mac.size(); ++i) entry.arp_ha.sa_data[i] = static_cast<char>(mac[i]);
    entry.arp_flags = ATF_PERM | ATF_COM;
    std::strncpy(entry.arp_dev, kHostInterface, sizeof(entry.arp_dev) - 1);
    return ioctl(fd.get(), SIOCSARP, &entry) == 0 ? Result<void>() : system_error("SIOCSARP");
  });
}

}  // namespace clustar::bench::fabric::selftest
