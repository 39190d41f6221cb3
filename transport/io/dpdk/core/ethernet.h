// Frames as a host on Ethernet with IPv4 writes and reads them: UDP, ARP, and ICMP's echo. Pure.
//
//   | Ethernet, 14 B | IPv4, 20 B, no options, DF | UDP, 8 B | payload |
//   | Ethernet, 14 B | ARP, 28 B |
//
// RFC 791 (IPv4), 768 (UDP), 792 (ICMP), 826 (ARP), 1071 (checksums).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace clustar::transport::io::dpdk {

using Mac = std::array<std::uint8_t, 6>;
using Ipv4 = std::uint32_t;  // as a number: 10.0.0.1 is 0x0a000001

inline constexpr Mac kBroadcast{0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
inline constexpr std::size_t kEthernetBytes = 14;
inline constexpr std::size_t kIpv4Bytes = 20;
inline constexpr std::size_t kUdpBytes = 8;
inline constexpr std::size_t kUdpHeaderBytes = kEthernetBytes + kIpv4Bytes + kUdpBytes;
inline constexpr std::size_t kArpFrameBytes = kEthernetBytes + 28;

struct UdpRoute {
  Mac source{};
  Mac destination{};
  Ipv4 from = 0;
  Ipv4 to = 0;
  std::uint16_t from_port = 0;
  std::uint16_t to_port = 0;
};

// Of a datagram of `payload` bytes, into the first kUdpHeaderBytes of `out`. `tos`: DSCP and ECN. UDP's checksum is
// that of the pseudo header, not inverted: what a NIC that fills it in expects, and finish_udp() as well.
void write_udp(std::span<std::byte> out, const UdpRoute& route, std::size_t payload, std::uint8_t tos);
// In software: `frame`, as write_udp() and the caller have left it, and `rest` are all of it.
void finish_udp(std::span<std::byte> frame, std::span<const std::byte> rest = {});

struct Arp {
  bool reply = false;  // otherwise a request
  Mac sender{};
  Ipv4 sender_ip = 0;
  Mac target{};
  Ipv4 target_ip = 0;
};
void write_arp(std::span<std::byte> out, const Arp& arp, const Mac& destination);  // kArpFrameBytes

enum class FrameKind : std::uint8_t {
  kUdp,
  kArp,
  kEcho,      // an echo request
  kFragment,  // of an IPv4 packet
  kForeign,   // another protocol, which is none of our business
  kDamaged,   // its lengths contradict, or the checksum of IPv4 or ICMP is wrong
};

struct ParsedFrame {
  FrameKind kind = FrameKind::kForeign;
  Mac source{};
  Mac destination{};
  Arp arp{};  // of kArp
  // Of kUdp and kEcho.
  Ipv4 from = 0;
  Ipv4 to = 0;
  std::uint8_t tos = 0;
  std::span<const std::byte> message{};  // of UDP or ICMP, with its header
  // Of kUdp.
  std::uint16_t from_port = 0;
  std::uint16_t to_port = 0;
  std::span<const std::byte> payload{};
};

// What its spans show are bytes of `frame`. UDP's checksum is not looked at.
ParsedFrame parse_ethernet(std::span<const std::byte> frame);

enum class Checksum : std::uint8_t {
  kGood,
  kAbsent,   // the sender computed none
  kPartial,  // of the pseudo header only: left to a NIC that the packet never passed, as between virtual interfaces
  kWrong,
};
Checksum check_udp(const ParsedFrame& udp);

// The answer to an echo request, into `out`, which has room for kEthernetBytes + kIpv4Bytes + the message. How long it
// is.
std::size_t write_echo_reply(std::span<std::byte> out, const ParsedFrame& request);

}  // namespace clustar::transport::io::dpdk
