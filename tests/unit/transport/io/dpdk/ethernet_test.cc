#include "transport/io/dpdk/core/ethernet.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "transport/base/rng.h"

namespace clustar::transport::io::dpdk {
namespace {

constexpr Mac kOne{2, 0, 0, 0, 0, 1};
constexpr Mac kTwo{2, 0, 0, 0, 0, 2};
constexpr Ipv4 kIpOne = 0x0a000001;
constexpr Ipv4 kIpTwo = 0x0a000002;

std::vector<std::byte> bytes_of(const std::string& hex) {
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

std::vector<std::byte> datagram(std::size_t payload, unsigned seed, std::uint8_t tos = 0) {
  std::vector<std::byte> frame(kUdpHeaderBytes + payload);
  Rng rng(seed);
  for (std::byte& byte : std::span(frame).subspan(kUdpHeaderBytes)) byte = static_cast<std::byte>(rng.next());
  write_udp(frame, {kOne, kTwo, kIpOne, kIpTwo, 1000, 2000}, payload, tos);
  finish_udp(frame);
  return frame;
}

TEST(DpdkEthernet, ADatagramIsReadAsItWasWritten) {
  for (std::size_t payload = 0; payload < 100; ++payload) {
    const auto frame = datagram(payload, static_cast<unsigned>(payload) + 1, 0xe2);
    const ParsedFrame parsed = parse_ethernet(frame);
    ASSERT_EQ(parsed.kind, FrameKind::kUdp) << payload;
    EXPECT_EQ(parsed.source, kOne);
    EXPECT_EQ(parsed.destination, kTwo);
    EXPECT_EQ(parsed.from, kIpOne);
    EXPECT_EQ(parsed.to, kIpTwo);
    EXPECT_EQ(parsed.from_port, 1000);
    EXPECT_EQ(parsed.to_port, 2000);
    EXPECT_EQ(parsed.tos, 0xe2);
    EXPECT_TRUE(std::ranges::equal(parsed.payload, std::span(frame).subspan(kUdpHeaderBytes)));
    EXPECT_EQ(check_udp(parsed), Checksum::kGood) << payload;
  }
}

// Word by word, as RFC 1071 tells it.
std::uint32_t plain_sum(std::span<const std::byte> bytes) {
  std::uint32_t sum = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const auto byte = std::to_integer<std::uint32_t>(bytes[i]);
    sum += i % 2 == 0 ? byte << 8 : byte;
    sum = (sum & 0xffff) + (sum >> 16);
  }
  return sum;
}

TEST(DpdkEthernet, SumsAreThoseOfThePlainAlgorithm) {
  std::vector<std::vector<std::byte>> frames;
  for (std::size_t payload = 0; payload < 200; ++payload) frames.push_back(datagram(payload, 7, 0xb8));
  for (const std::size_t payload : {1471u, 1472u, 65506u, 65507u}) {  // the largest sums that there are
    frames.emplace_back(kUdpHeaderBytes + payload, std::byte{0xff});
    write_udp(frames.back(), {kOne, kTwo, 0xffff'fffe, 0xffff'fffd, 65535, 65534}, payload, 0xff);
    finish_udp(frames.back());
  }
  for (const auto& frame : frames) {
    const auto ip = std::span(frame).subspan(kEthernetBytes);
    EXPECT_EQ(plain_sum(ip.first(kIpv4Bytes)), 0xffffu) << frame.size();
    // RFC 768: addresses, protocol and length are summed with the datagram.
    const auto udp = ip.subspan(kIpv4Bytes);
    std::vector<std::byte> summed(12 + udp.size());
    std::ranges::copy(ip.subspan(12, 8), summed.begin());
    summed[9] = std::byte{17};
    std::ranges::copy(udp.subspan(4, 2), summed.begin() + 10);
    std::ranges::copy(udp, summed.begin() + 12);
    EXPECT_EQ(plain_sum(summed), 0xffffu) << frame.size();
    EXPECT_EQ(check_udp(parse_ethernet(frame)), Checksum::kGood) << frame.size();
  }
}

// Wherever it is cut, and odd or even what is in front.
TEST(DpdkEthernet, TheChecksumOfADatagramInTwoPlacesIsThatOfOne) {
  for (std::size_t payload = 0; payload < 40; ++payload) {
    for (std::size_t front = 0; front <= payload; ++front) {
      auto frame = datagram(payload, static_cast<unsigned>(payload) + 1);
      const auto whole = frame;
      write_udp(frame, {kOne, kTwo, kIpOne, kIpTwo, 1000, 2000}, payload, 0);
      finish_udp(std::span(frame).first(kUdpHeaderBytes + front), std::span(frame).subspan(kUdpHeaderBytes + front));
      ASSERT_EQ(frame, whole) << front << " of " << payload;
    }
  }
}

// Both made by hand with Python's struct and checked against the sums of RFC 1071's algorithm there.
TEST(DpdkEthernet, TheBytesAreThoseOfTheStandards) {
  std::vector<std::byte> frame(kUdpHeaderBytes + 3);
  frame[kUdpHeaderBytes] = std::byte{'a'};
  frame[kUdpHeaderBytes + 1] = std::byte{'b'};
  frame[kUdpHeaderBytes + 2] = std::byte{'c'};
  write_udp(frame, {kOne, kTwo, kIpOne, kIpTwo, 1000, 2000}, 3, 0x20);
  finish_udp(frame);
  EXPECT_EQ(frame, bytes_of("020000000002020000000001"
                            "0800"
                            "4520001f000040004011"
                            "26ac"
                            "0a0000010a000002"
                            "03e807d0000b"
                            "1bbb"
                            "616263"));
  std::vector<std::byte> arp(kArpFrameBytes);
  write_arp(arp, {false, kOne, kIpOne, {}, kIpTwo}, kBroadcast);
  EXPECT_EQ(arp, bytes_of("ffffffffffff020000000001"
                          "08060001080006040001"
                          "0200000000010a000001"
                          "0000000000000a000002"));
}

TEST(DpdkEthernet, EveryBitThatFlipsIsFound) {
  const auto good = datagram(61, 7);
  for (std::size_t bit = 8 * kEthernetBytes; bit < 8 * good.size(); ++bit) {
    auto frame = good;
    frame[bit / 8] ^= std::byte{1} << (bit % 8);
    const ParsedFrame parsed = parse_ethernet(frame);
    const bool passes = parsed.kind == FrameKind::kUdp && check_udp(parsed) == Checksum::kGood;
    EXPECT_FALSE(passes) << "byte " << bit / 8;
  }
}

TEST(DpdkEthernet, WhatIsCutIsDamagedAndPaddingIsNoPayload) {
  const auto whole = datagram(30, 3);
  for (std::size_t length = 0; length < whole.size(); ++length) {
    EXPECT_EQ(parse_ethernet(std::span(whole).first(length)).kind, FrameKind::kDamaged) << length;
  }
  auto padded = datagram(2, 4);
  padded.resize(60);
  const ParsedFrame parsed = parse_ethernet(padded);
  ASSERT_EQ(parsed.kind, FrameKind::kUdp);
  EXPECT_EQ(parsed.payload.size(), 2u);
  EXPECT_EQ(check_udp(parsed), Checksum::kGood);
}

TEST(DpdkEthernet, AChecksumThatIsAbsentOrLeftToTheNicIsToldFromAWrongOne) {
  std::vector<std::byte> frame(kUdpHeaderBytes + 20, std::byte{0x5a});
  write_udp(frame, {kOne, kTwo, kIpOne, kIpTwo, 1000, 2000}, 20, 0);
  EXPECT_EQ(check_udp(parse_ethernet(frame)), Checksum::kPartial);
  frame[kUdpHeaderBytes - 1] ^= std::byte{1};
  EXPECT_EQ(check_udp(parse_ethernet(frame)), Checksum::kWrong);
  frame[kUdpHeaderBytes - 2] = frame[kUdpHeaderBytes - 1] = std::byte{0};
  EXPECT_EQ(check_udp(parse_ethernet(frame)), Checksum::kAbsent);
}

// A sum of 0 is sent as 0xffff, since 0 says that there is none.
TEST(DpdkEthernet, NoDatagramSaysByItsSumThatItHasNone) {
  bool seen = false;
  for (unsigned value = 0; value < 65536 && !seen; ++value) {
    std::vector<std::byte> frame(kUdpHeaderBytes + 2);
    frame[kUdpHeaderBytes] = static_cast<std::byte>(value >> 8);
    frame[kUdpHeaderBytes + 1] = static_cast<std::byte>(value);
    write_udp(frame, {kOne, kTwo, kIpOne, kIpTwo, 1000, 2000}, 2, 0);
    finish_udp(frame);
    seen = frame[kUdpHeaderBytes - 2] == std::byte{0xff} && frame[kUdpHeaderBytes - 1] == std::byte{0xff};
    ASSERT_EQ(check_udp(parse_ethernet(frame)), Checksum::kGood) << value;
  }
  EXPECT_TRUE(seen);
}

TEST(DpdkEthernet, ArpIsReadAsItWasWritten) {
  for (const bool reply : {false, true}) {
    std::vector<std::byte> frame(kArpFrameBytes);
    write_arp(frame, {reply, kOne, kIpOne, kTwo, kIpTwo}, kTwo);
    const ParsedFrame parsed = parse_ethernet(frame);
    ASSERT_EQ(parsed.kind, FrameKind::kArp);
    EXPECT_EQ(parsed.arp.reply, reply);
    EXPECT_EQ(parsed.arp.sender, kOne);
    EXPECT_EQ(parsed.arp.sender_ip, kIpOne);
    EXPECT_EQ(parsed.arp.target, kTwo);
    EXPECT_EQ(parsed.arp.target_ip, kIpTwo);
    frame[kEthernetBytes + 1] = std::byte{6};  // another kind of hardware
    EXPECT_EQ(parse_ethernet(frame).kind, FrameKind::kForeign);
  }
}

TEST(DpdkEthernet, PingIsAnsweredWithWhatItBrought) {
  // An echo request of 12 bytes, from kIpOne to kIpTwo: its reply is one that the other end reads as sound.
  std::vector<std::byte> message = bytes_of("0800000012340001cafe0102");
  std::uint32_t sum = 0;
  for (std::size_t i = 0; i < message.size(); i += 2) {
    sum += std::to_integer<std::uint32_t>(message[i]) << 8 | std::to_integer<std::uint32_t>(message[i + 1]);
  }
  sum = (sum & 0xffff) + (sum >> 16);
  message[2] = static_cast<std::byte>(~sum >> 8);
  message[3] = static_cast<std::byte>(~sum);
  ParsedFrame request;
  request.source = kOne;
  request.destination = kTwo;
  request.from = kIpOne;
  request.to = kIpTwo;
  request.message = message;
  std::vector<std::byte> reply(kEthernetBytes + kIpv4Bytes + message.size());
  ASSERT_EQ(write_echo_reply(reply, request), reply.size());
  const ParsedFrame parsed = parse_ethernet(reply);
  EXPECT_EQ(parsed.kind, FrameKind::kForeign);  // sound, and no request
  EXPECT_EQ(parsed.source, kTwo);
  EXPECT_EQ(parsed.destination, kOne);
  EXPECT_EQ(parsed.from, kIpTwo);
  EXPECT_EQ(parsed.to, kIpOne);
  EXPECT_EQ(parsed.message[0], std::byte{0});
  EXPECT_TRUE(std::ranges::equal(parsed.message.subspan(4), std::span(message).subspan(4)));
  // The request itself, put on the wire.
  std::ranges::copy(message, reply.begin() + kEthernetBytes + kIpv4Bytes);
  EXPECT_EQ(parse_ethernet(reply).kind, FrameKind::kEcho);
  reply.back() ^= std::byte{1};
  EXPECT_EQ(parse_ethernet(reply).kind, FrameKind::kDamaged);
}

TEST(DpdkEthernet, FragmentsAreToldApart) {
  auto frame = datagram(20, 5);
  frame[kEthernetBytes + 6] = std::byte{0x20};  // more of them, in place of DF
  // The sum stays right: 0x4000 became 0x2000.
  const std::size_t at = kEthernetBytes + 10;
  unsigned sum = std::to_integer<unsigned>(frame[at]) << 8 | std::to_integer<unsigned>(frame[at + 1]);
  sum += 0x2000;
  sum = (sum & 0xffff) + (sum >> 16);
  frame[at] = static_cast<std::byte>(sum >> 8);
  frame[at + 1] = static_cast<std::byte>(sum);
  EXPECT_EQ(parse_ethernet(frame).kind, FrameKind::kFragment);
}

}  // namespace
}  // namespace clustar::transport::io::dpdk
