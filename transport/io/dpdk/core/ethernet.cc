#include "transport/io/dpdk/core/ethernet.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "transport/base/bytes.h"

namespace clustar::transport::io::dpdk {
namespace {

constexpr std::uint16_t kTypeIpv4 = 0x0800;
constexpr std::uint16_t kTypeArp = 0x0806;
constexpr std::uint8_t kProtocolIcmp = 1;
constexpr std::uint8_t kProtocolUdp = 17;
constexpr std::uint8_t kHops = 64;
constexpr std::uint16_t kDontFragment = 0x4000;
constexpr std::uint16_t kFragmentBits = 0x3fff;  // more of them, and the offset
constexpr std::size_t kIcmpBytes = 8;
constexpr std::size_t kArpBytes = kArpFrameBytes - kEthernetBytes;
constexpr std::size_t kIpv4Checksum = 10;
constexpr std::size_t kUdpChecksum = 6;

using Bytes = std::span<const std::byte>;

// Registers of every x86-64 and ARMv8.
using Lanes = std::uint32_t __attribute__((vector_size(16)));

// The sum of RFC 1071 in the machine's byte order, in which it is stored again: it does not depend on the order.
// At most 64 KiB.
std::uint64_t sum_of(Bytes bytes) {
  std::array<Lanes, 2> sums{};  // side by side: one alone would wait for each of its additions
  constexpr std::size_t kStride = sizeof sums;
  for (; bytes.size() >= kStride; bytes = bytes.subspan(kStride)) {
    std::array<Lanes, 2> words;
    std::memcpy(&words, bytes.data(), kStride);
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += (words[i] & 0xffffu) + (words[i] >> 16);
  }
  std::uint64_t sum = 0;
  for (const Lanes& lanes : sums) sum += std::uint64_t{lanes[0]} + lanes[1] + lanes[2] + lanes[3];
  for (; bytes.size() >= 4; bytes = bytes.subspan(4)) {
    std::uint32_t word = 0;
    std::memcpy(&word, bytes.data(), 4);
    sum += word;
  }
  if (!bytes.empty()) {
    std::uint32_t word = 0;
    std::memcpy(&word, bytes.data(), bytes.size());
    sum += word;
  }
  return sum;
}

std::uint16_t fold(std::uint64_t sum) {
  while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<std::uint16_t>(sum);
}

// Of what is about to be written, in numbers: reading it back at once would wait until it has left the store buffer.
std::uint64_t sum_of(Ipv4 address) { return (address >> 16) + (address & 0xffff); }

std::uint16_t load16(Bytes at) {
  std::uint16_t value = 0;
  std::memcpy(&value, at.data(), 2);
  return value;
}

void store16(std::span<std::byte> at, std::uint16_t value) { std::memcpy(at.data(), &value, 2); }

Mac mac_at(Bytes at) {
  Mac mac;
  std::memcpy(mac.data(), at.data(), mac.size());
  return mac;
}

void put_mac(std::span<std::byte> at, const Mac& mac) { std::memcpy(at.data(), mac.data(), mac.size()); }

void write_ethernet(std::span<std::byte> out, const Mac& destination, const Mac& source, std::uint16_t type) {
  put_mac(out, destination);
  put_mac(out.subspan(6), source);
  WireWriter<2>{out.subspan(12).first<2>()}.store<0>(type);
}

void write_ipv4(std::span<std::byte> out, Ipv4 from, Ipv4 to, std::uint8_t protocol, std::size_t total,
                std::uint8_t tos) {
  WireWriter<kIpv4Bytes> writer{out.first<kIpv4Bytes>()};
  writer.store<0>(std::uint8_t{0x45});
  writer.store<1>(tos);
  writer.store<2>(static_cast<std::uint16_t>(total));
  // RFC 6864: of a packet that is never fragmented nobody reads the identification.
  writer.store<4>(std::uint16_t{0});
  writer.store<6>(kDontFragment);
  writer.store<8>(kHops);
  writer.store<9>(protocol);
  const std::uint64_t sum = 0x4500u + tos + total + kDontFragment + (kHops << 8) + protocol + sum_of(from) + sum_of(to);
  writer.store<kIpv4Checksum>(static_cast<std::uint16_t>(~fold(sum)));
  writer.store<12>(from);
  writer.store<16>(to);
}

// Of addresses, protocol and length, in the machine's byte order.
std::uint16_t pseudo_sum(Ipv4 from, Ipv4 to, std::size_t udp_bytes) {
  const std::uint16_t sum = fold(sum_of(from) + sum_of(to) + kProtocolUdp + udp_bytes);
  std::array<std::byte, 2> wire{};
  WireWriter<2>{std::span<std::byte, 2>(wire)}.store<0>(sum);
  return load16(wire);
}

Arp arp_of(Bytes bytes) {
  const WireReader<kArpBytes> reader{bytes.first<kArpBytes>()};
  return {reader.load<std::uint16_t, 6>() == 2, mac_at(bytes.subspan(8)), reader.load<std::uint32_t, 14>(),
          mac_at(bytes.subspan(18)), reader.load<std::uint32_t, 24>()};
}

FrameKind kind_of_arp(Bytes bytes) {
  if (bytes.size() < kArpBytes) return FrameKind::kDamaged;
  const WireReader<kArpBytes> reader{bytes.first<kArpBytes>()};
  const bool ours = reader.load<std::uint16_t, 0>() == 1 && reader.load<std::uint16_t, 2>() == kTypeIpv4 &&
                    reader.load<std::uint8_t, 4>() == 6 && reader.load<std::uint8_t, 5>() == 4;
  const auto operation = reader.load<std::uint16_t, 6>();
  return ours && (operation == 1 || operation == 2) ? FrameKind::kArp : FrameKind::kForeign;
}

FrameKind parse_udp(ParsedFrame& parsed) {
  const Bytes message = parsed.message;
  if (message.size() < kUdpBytes) return FrameKind::kDamaged;
  const WireReader<kUdpBytes> reader{message.first<kUdpBytes>()};
  const std::size_t length = reader.load<std::uint16_t, 4>();
  if (length < kUdpBytes || length > message.size()) return FrameKind::kDamaged;
  parsed.from_port = reader.load<std::uint16_t, 0>();
  parsed.to_port = reader.load<std::uint16_t, 2>();
  parsed.message = message.first(length);
  parsed.payload = parsed.message.subspan(kUdpBytes);
  return FrameKind::kUdp;
}

FrameKind kind_of_icmp(Bytes message) {
  if (message.size() < kIcmpBytes || fold(sum_of(message)) != 0xffff) return FrameKind::kDamaged;
  const bool request = message[0] == std::byte{8} && message[1] == std::byte{0};
  return request ? FrameKind::kEcho : FrameKind::kForeign;
}

FrameKind parse_ipv4(Bytes bytes, ParsedFrame& parsed) {
  if (bytes.size() < kIpv4Bytes) return FrameKind::kDamaged;
  const WireReader<kIpv4Bytes> reader{bytes.first<kIpv4Bytes>()};
  const auto version = reader.load<std::uint8_t, 0>();
  const std::size_t header = std::size_t{version & 0xfu} * 4;
  const std::size_t total = reader.load<std::uint16_t, 2>();
  if (version >> 4 != 4 || header < kIpv4Bytes || total < header || total > bytes.size()) return FrameKind::kDamaged;
  if (fold(sum_of(bytes.first(header))) != 0xffff) return FrameKind::kDamaged;
  parsed.from = reader.load<std::uint32_t, 12>();
  parsed.to = reader.load<std::uint32_t, 16>();
  parsed.tos = reader.load<std::uint8_t, 1>();
  if ((reader.load<std::uint16_t, 6>() & kFragmentBits) != 0) return FrameKind::kFragment;
  parsed.message = bytes.subspan(header, total - header);
  switch (reader.load<std::uint8_t, 9>()) {
    case kProtocolUdp: return parse_udp(parsed);
    case kProtocolIcmp: return kind_of_icmp(parsed.message);
    default: return FrameKind::kForeign;
  }
}

}  // namespace

void write_udp(std::span<std::byte> out, const UdpRoute& route, std::size_t payload, std::uint8_t tos) {
  const std::size_t udp = kUdpBytes + payload;
  write_ethernet(out, route.destination, route.source, kTypeIpv4);
  write_ipv4(out.subspan(kEthernetBytes), route.from, route.to, kProtocolUdp, kIpv4Bytes + udp, tos);
  const std::span<std::byte> at = out.subspan(kEthernetBytes + kIpv4Bytes);
  WireWriter<kUdpBytes> writer{at.first<kUdpBytes>()};
  writer.store<0>(route.from_port);
  writer.store<2>(route.to_port);
  writer.store<4>(static_cast<std::uint16_t>(udp));
  store16(at.subspan(kUdpChecksum), pseudo_sum(route.from, route.to, udp));
}

void finish_udp(std::span<std::byte> frame, std::span<const std::byte> rest) {
  const std::span<std::byte> udp = frame.subspan(kEthernetBytes + kIpv4Bytes);
  // Behind an odd number of bytes each one counts as the other half of its word (RFC 1071, section 2).
  const std::uint16_t behind = fold(sum_of(rest));
  const auto moved = static_cast<std::uint16_t>(udp.size() % 2 == 0 ? behind : behind << 8 | behind >> 8);
  const auto sum = static_cast<std::uint16_t>(~fold(sum_of(udp) + moved));
  store16(udp.subspan(kUdpChecksum), sum == 0 ? std::uint16_t{0xffff} : sum);  // 0 would say that there is none
}

void write_arp(std::span<std::byte> out, const Arp& arp, const Mac& destination) {
  write_ethernet(out, destination, arp.sender, kTypeArp);
  const std::span<std::byte> at = out.subspan(kEthernetBytes);
  WireWriter<kArpBytes> writer{at.first<kArpBytes>()};
  writer.store<0>(std::uint16_t{1});
  writer.store<2>(kTypeIpv4);
  writer.store<4>(std::uint8_t{6});
  writer.store<5>(std::uint8_t{4});
  writer.store<6>(std::uint16_t{arp.reply ? std::uint16_t{2} : std::uint16_t{1}});
  put_mac(at.subspan(8), arp.sender);
  writer.store<14>(arp.sender_ip);
  put_mac(at.subspan(18), arp.target);
  writer.store<24>(arp.target_ip);
}

ParsedFrame parse_ethernet(std::span<const std::byte> frame) {
  ParsedFrame parsed;
  if (frame.size() < kEthernetBytes) {
    parsed.kind = FrameKind::kDamaged;
    return parsed;
  }
  parsed.destination = mac_at(frame);
  parsed.source = mac_at(frame.subspan(6));
  const auto type = WireReader<2>{frame.subspan(12).first<2>()}.load<std::uint16_t, 0>();
  const Bytes rest = frame.subspan(kEthernetBytes);
  if (type == kTypeArp) {
    parsed.kind = kind_of_arp(rest);
    if (parsed.kind == FrameKind::kArp) parsed.arp = arp_of(rest);
  } else if (type == kTypeIpv4) {
    parsed.kind = parse_ipv4(rest, parsed);
  }
  return parsed;
}

Checksum check_udp(const ParsedFrame& udp) {
  const std::uint16_t told = load16(udp.message.subspan(kUdpChecksum));
  if (told == 0) return Checksum::kAbsent;
  const std::uint16_t pseudo = pseudo_sum(udp.from, udp.to, udp.message.size());
  if (fold(sum_of(udp.message) + pseudo) == 0xffff) return Checksum::kGood;
  return told == pseudo ? Checksum::kPartial : Checksum::kWrong;
}

std::size_t write_echo_reply(std::span<std::byte> out, const ParsedFrame& request) {
  write_ethernet(out, request.source, request.destination, kTypeIpv4);
  const std::span<std::byte> ip = out.subspan(kEthernetBytes);
  write_ipv4(ip, request.to, request.from, kProtocolIcmp, kIpv4Bytes + request.message.size(), request.tos);
  const std::span<std::byte> icmp = ip.subspan(kIpv4Bytes, request.message.size());
  std::ranges::copy(request.message, icmp.begin());
  icmp[0] = std::byte{0};
  store16(icmp.subspan(2), 0);
  store16(icmp.subspan(2), static_cast<std::uint16_t>(~fold(sum_of(icmp))));
  return kEthernetBytes + kIpv4Bytes + request.message.size();
}

}  // namespace clustar::transport::io::dpdk
