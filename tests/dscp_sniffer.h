// Reads a wire: the bytes of IP packets that come in by an interface, by the DSCP of their headers.
#pragma once

#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <thread>
#include <utility>

#include "transport/base/file_descriptor.h"

namespace clustar::tests {

class DscpSniffer {
 public:
  // In the network namespace of the caller. Needs CAP_NET_RAW.
  static FileDescriptor open(const char* interface) {
    FileDescriptor socket(::socket(AF_PACKET, SOCK_DGRAM | SOCK_CLOEXEC, htons(ETH_P_IP)));
    sockaddr_ll address{};
    address.sll_family = AF_PACKET;
    address.sll_protocol = htons(ETH_P_IP);
    address.sll_ifindex = static_cast<int>(if_nametoindex(interface));
    ::bind(socket.fd(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
    int room = 32 << 20;
    setsockopt(socket.fd(), SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room);
    return socket;
  }

  // Of the class (a TOS byte) `top`, `urgent` bytes are one message.
  DscpSniffer(FileDescriptor socket, int top, std::uint64_t urgent)
      : socket_(std::move(socket)), top_(index_of(top)), urgent_(urgent), thread_([this] { run(); }) {}
  ~DscpSniffer() {
    stop_ = true;
    thread_.join();
  }
  DscpSniffer(const DscpSniffer&) = delete;
  DscpSniffer& operator=(const DscpSniffer&) = delete;

  // So far, of packets longer than an acknowledgement.
  std::uint64_t seen(int traffic_class) const { return seen_[index_of(traffic_class)]; }
  std::uint64_t others() const { return all_ - seen_[top_]; }
  // What others() was when so much of the top class had passed; 0: it has not.
  std::uint64_t others_when_top_had_passed() const { return others_at_top_; }

 private:
  static constexpr std::size_t index_of(int traffic_class) { return static_cast<std::size_t>(traffic_class >> 2); }

  void run() {
    while (!stop_) {
      pollfd ready{socket_.fd(), POLLIN, 0};
      if (::poll(&ready, 1, 10) <= 0) continue;
      iphdr header{};
      sockaddr_ll from{};
      socklen_t length = sizeof from;
      const ssize_t got = ::recvfrom(socket_.fd(), &header, sizeof header, MSG_TRUNC | MSG_DONTWAIT,
                                     reinterpret_cast<sockaddr*>(&from), &length);
      if (got < 200 || from.sll_pkttype == PACKET_OUTGOING) continue;
      seen_[header.tos >> 2] += static_cast<std::uint64_t>(got);
      all_ += static_cast<std::uint64_t>(got);
      if (others_at_top_ == 0 && seen_[top_] >= urgent_) others_at_top_ = others();
    }
  }

  FileDescriptor socket_;
  const std::size_t top_;
  const std::uint64_t urgent_;
  std::array<std::atomic<std::uint64_t>, 64> seen_{};
  std::atomic<std::uint64_t> all_{0};
  std::atomic<std::uint64_t> others_at_top_{0};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace clustar::tests
