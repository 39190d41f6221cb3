#include "bench/fabric/delay/packet_port.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace clustar::bench::fabric {
namespace {

// struct virtio_net_hdr (virtio 1.2, 5.1.6): 10 bytes, of which the second is the kind of super-packet, 0 for none.
// Ours, since linux/virtio_net.h is no C++.
constexpr std::size_t kHeadBytes = 10;
constexpr std::size_t kGsoTypeAt = 1;
constexpr int kSocketBytes = 16 * 1024 * 1024;  // what may come while the process does not run
constexpr std::int64_t kSecond = 1'000'000'000;
constexpr std::int64_t kStep = kSecond / 1000;  // more than a lost core or NTP's slewing makes of it

std::int64_t clock_ns(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return now.tv_sec * kSecond + now.tv_nsec;
}

// Since the kernel's time stamp, which is of the wall clock; 0 when there is none or it cannot be.
std::int64_t age_of(const msghdr& message, std::int64_t now) {
  for (const cmsghdr* one = CMSG_FIRSTHDR(&message); one != nullptr;
       one = CMSG_NXTHDR(const_cast<msghdr*>(&message), const_cast<cmsghdr*>(one))) {
    if (one->cmsg_level != SOL_SOCKET || one->cmsg_type != SO_TIMESTAMPNS) continue;
    timespec stamp{};
    std::memcpy(&stamp, CMSG_DATA(one), sizeof(stamp));
    const std::int64_t age = now - (stamp.tv_sec * kSecond + stamp.tv_nsec);
    return age >= 0 && age < kSecond / 10 ? age : 0;
  }
  return 0;
}

}  // namespace

PacketPort::~PacketPort() {
  if (fd_ >= 0) close(fd_);
}

Result<void> PacketPort::open(const std::string& interface, int mtu) {
  slot_bytes_ = kHeadBytes + static_cast<std::size_t>(mtu) + ETH_HLEN;
  memory_.resize(kPacketBatch * slot_bytes_);
  fd_ = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const int on = 1;
  sockaddr_ll address{};
  address.sll_family = AF_PACKET;
  address.sll_protocol = htons(ETH_P_ALL);
  address.sll_ifindex = static_cast<int>(if_nametoindex(interface.c_str()));
  if (fd_ >= 0) setsockopt(fd_, SOL_SOCKET, SO_RCVBUFFORCE, &kSocketBytes, sizeof(kSocketBytes));
  if (fd_ >= 0) setsockopt(fd_, SOL_SOCKET, SO_SNDBUFFORCE, &kSocketBytes, sizeof(kSocketBytes));
  if (fd_ < 0 || setsockopt(fd_, SOL_PACKET, PACKET_VNET_HDR, &on, sizeof(on)) != 0 ||
      setsockopt(fd_, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof(on)) != 0 ||
      setsockopt(fd_, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof(on)) != 0 || address.sll_ifindex == 0 ||
      bind(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return fail(ErrorCode::kSystem, fmt::format("{}: cannot open a packet socket (CONFIG_PACKET, Linux 4.20): {}",
                                                interface, std::strerror(errno)));
  }
  return {};
}

std::span<const PacketPort::Arrival> PacketPort::receive() {
  std::array<mmsghdr, kPacketBatch> messages{};
  std::array<iovec, kPacketBatch> pieces{};
  struct alignas(cmsghdr) Control {
    char bytes[CMSG_SPACE(sizeof(timespec))];
  };
  std::array<Control, kPacketBatch> controls;
  for (std::size_t i = 0; i < kPacketBatch; ++i) {
    pieces[i] = {memory_.data() + i * slot_bytes_, slot_bytes_};
    messages[i].msg_hdr.msg_iov = &pieces[i];
    messages[i].msg_hdr.msg_iovlen = 1;
    messages[i].msg_hdr.msg_control = controls[i].bytes;
    messages[i].msg_hdr.msg_controllen = sizeof(controls[i].bytes);
  }
  const int n = recvmmsg(fd_, messages.data(), kPacketBatch, MSG_DONTWAIT, nullptr);
  const std::int64_t now = clock_ns(CLOCK_REALTIME), ahead = now - clock_ns(CLOCK_MONOTONIC);
  // Somebody has set the wall clock: stamps from before say nothing of age, and a packet must never go too early.
  const bool was_set = std::abs(ahead - wall_ahead_ns_) > kStep;
  wall_ahead_ns_ = ahead;
  for (std::size_t i = 0; n > 0 && i < static_cast<std::size_t>(n); ++i) {
    const std::span<const std::byte> packet(memory_.data() + i * slot_bytes_, messages[i].msg_len);
    const bool cut = (messages[i].msg_hdr.msg_flags & MSG_TRUNC) != 0 || packet.size() < kHeadBytes;
    arrivals_[i] = {packet, was_set ? 0 : age_of(messages[i].msg_hdr, now), cut || packet[kGsoTypeAt] != std::byte{0}};
  }
  return std::span(arrivals_).first(static_cast<std::size_t>(std::max(n, 0)));
}

int PacketPort::send(std::span<const std::span<const std::byte>> packets) {
  std::array<mmsghdr, kPacketBatch> messages{};
  std::array<iovec, kPacketBatch> pieces{};
  const std::size_t n = std::min(packets.size(), kPacketBatch);
  for (std::size_t i = 0; i < n; ++i) {
    pieces[i] = {const_cast<std::byte*>(packets[i].data()), packets[i].size()};
    messages[i].msg_hdr.msg_iov = &pieces[i];
    messages[i].msg_hdr.msg_iovlen = 1;
  }
  return sendmmsg(fd_, messages.data(), static_cast<unsigned>(n), MSG_DONTWAIT);
}

std::uint64_t PacketPort::take_lost() {
  tpacket_stats stats{};
  socklen_t length = sizeof(stats);
  if (getsockopt(fd_, SOL_PACKET, PACKET_STATISTICS, &stats, &length) != 0) return 0;
  return stats.tp_drops;
}

}  // namespace clustar::bench::fabric
