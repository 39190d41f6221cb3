#include "transport/io/verbs/ud_wire.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "transport/base/rng.h"

namespace clustar::transport::io::verbs {
namespace {

using Bytes = std::array<std::byte, kNetworkHeader>;

Bytes bytes_of(std::initializer_list<int> values, std::size_t at) {
  Bytes bytes;
  bytes.fill(std::byte{0x66});  // what is in front of an IPv4 header is not defined
  std::transform(values.begin(), values.end(), bytes.begin() + static_cast<std::ptrdiff_t>(at),
                 [](int value) { return static_cast<std::byte>(value); });
  return bytes;
}

TEST(FixedMarks, StandForTheClassAndLeaveEcn) {
  constexpr FixedMarks none, both{.traffic_class = 106, .service_level = 3}, level{.service_level = 9}, zero{0, 0};
  for (int tos = 0; tos < 256; ++tos) {
    const auto own = static_cast<std::uint8_t>(tos);
    EXPECT_EQ(none.tos(own), own);
    EXPECT_EQ(none.level(own), class_of(own));
    EXPECT_EQ(both.tos(own), 104 | (own & 3)) << "DSCP 26; ECN is the packet's own";
    EXPECT_EQ(both.level(own), 3);
    EXPECT_EQ(level.tos(own), own);
    EXPECT_EQ(level.level(own), 9);
    EXPECT_EQ(zero.tos(own), own & 3);
    EXPECT_EQ(zero.level(own), 0);
  }
  constexpr FixedMarks dscp{.traffic_class = 104};
  EXPECT_EQ(dscp.level(0xe0), 3) << "what 802.1p gets of DSCP 26";
}

TEST(UdWire, Ipv4IsInTheLast20Bytes) {
  const Bytes bytes = bytes_of({0x45, 0xe2, 0, 99, 0, 0, 0x40, 0, 64, 17, 0xab, 0xcd, 10, 9, 0, 1, 10, 9, 0, 2}, 20);
  const auto header = parse_network_header(bytes, true);
  ASSERT_TRUE(header);
  EXPECT_EQ(header->source.to_string(), "10.9.0.1");
  EXPECT_EQ(class_of(header->tos), 7);
  EXPECT_EQ(ecn_of(header->tos), Ecn::kEct0);
  EXPECT_TRUE(parse_network_header(bytes, false)) << "its first byte happens to be 0x66, which is version 6";
  EXPECT_FALSE(parse_network_header(bytes_of({0x55}, 20), true));
}

TEST(UdWire, Ipv6IsAllOfIt) {
  Bytes bytes = bytes_of({0x6a, 0x3f, 0xff, 0xff, 0, 99, 0x1b, 64, 0xfd, 0}, 0);
  std::fill(bytes.begin() + 10, bytes.begin() + 23, std::byte{0});
  bytes[23] = std::byte{1};
  const auto header = parse_network_header(bytes, false);
  ASSERT_TRUE(header);
  EXPECT_EQ(header->source.to_string(), "fd00::1");
  EXPECT_EQ(class_of(header->tos), 5);
  EXPECT_EQ(ecn_of(header->tos), Ecn::kCe);
  EXPECT_FALSE(parse_network_header(bytes_of({0x45}, 0), false));
}

TEST(UdWire, ClassAndEctComeBack) {
  std::set<std::uint8_t> all;
  for (std::uint8_t traffic_class = 0; traffic_class < 8; ++traffic_class) {
    for (const bool ect : {false, true}) {
      const std::uint8_t tos = tos_of(traffic_class, ect);
      EXPECT_EQ(class_of(tos), traffic_class);
      EXPECT_EQ(ecn_of(tos), ect ? Ecn::kEct0 : Ecn::kNotEct);
      all.insert(tos);
    }
  }
  EXPECT_EQ(all.size(), 16u);
}

TEST(UdWire, HeadersOfOursOnlyAndNoneLongerThanTheDatagram) {
  for (std::size_t bytes = 1; bytes <= Header::kMax; ++bytes) {
    EXPECT_EQ(header_bytes_of(immediate_of(bytes), bytes), bytes);
    EXPECT_EQ(header_bytes_of(immediate_of(bytes), 4096), bytes);
    EXPECT_FALSE(header_bytes_of(immediate_of(bytes), bytes - 1));
  }
  EXPECT_FALSE(header_bytes_of(immediate_of(0), 100));
  EXPECT_FALSE(header_bytes_of(immediate_of(Header::kMax + 1), 4096));
  EXPECT_FALSE(header_bytes_of(immediate_of(4) | 1 << 16, 100));
  EXPECT_FALSE(header_bytes_of(immediate_of(4) ^ 1u << 24, 100));
  Rng rng(1);
  for (int i = 0; i < 100'000; ++i) {
    const auto length = static_cast<std::size_t>(rng.next() % 5000);
    const auto header = header_bytes_of(static_cast<std::uint32_t>(rng.next()), length);
    ASSERT_TRUE(!header || (*header >= 1 && *header <= std::min(length, Header::kMax)));
  }
}

// NICs fold the 20 bits into 14 of the UDP source port.
TEST(UdWire, NeighboursAmongQueuePairsGetOtherSourcePorts) {
  std::set<std::uint32_t> ports;
  for (std::uint8_t path = 0; path < 16; ++path) {
    const std::uint32_t label = flow_label_of(100u + path, path);
    EXPECT_GT(label, 0u);
    EXPECT_LT(label, 1u << 20);
    ports.insert((label & 0x3fff) ^ (label >> 14));
  }
  EXPECT_GE(ports.size(), 15u);
}

TEST(UdWire, AnAddressIsReadAsItWasWrittenAndDamageIsAnError) {
  UdAddress address{{}, 0x7fabcdef, {17, 0xffffff, 1}};
  for (std::size_t i = 0; i < address.gid.bytes.size(); ++i) address.gid.bytes[i] = static_cast<std::uint8_t>(i + 1);
  EXPECT_EQ(UdAddress::parse(address.serialize()).value(), address);
  address.queue_pairs.assign(25, 0x123456);
  EXPECT_EQ(UdAddress::parse(address.serialize()).value(), address);
  const auto whole = address.serialize();
  for (std::size_t length = 0; length < whole.bytes().size(); ++length) {
    const auto cut = AddressBlob::of(whole.bytes().first(length)).value();
    EXPECT_EQ(UdAddress::parse(cut).error().code, ErrorCode::kRemote) << length;
  }
}

TEST(UdWire, AddressesOfInterfacesAreGids) {
  const net::Endpoint ipv4{false, 9, {std::byte{10}, std::byte{9}, std::byte{0}, std::byte{1}}};
  EXPECT_EQ(gid_of(ipv4).to_string(), "10.9.0.1");
  EXPECT_EQ(endpoint_of(gid_of(ipv4)).address, ipv4.address);
  EXPECT_FALSE(endpoint_of(gid_of(ipv4)).ipv6);
  net::Endpoint ipv6{true, 0, {std::byte{0xfd}}};
  ipv6.address[15] = std::byte{7};
  EXPECT_EQ(endpoint_of(gid_of(ipv6)).address, ipv6.address);
  EXPECT_TRUE(endpoint_of(gid_of(ipv6)).ipv6);
}

}  // namespace
}  // namespace clustar::transport::io::verbs
