#include "transport/io/dpdk/core/device_spec.h"

#include <gtest/gtest.h>

#include <vector>

namespace clustar::transport::io::dpdk {
namespace {

TEST(DpdkDevices, TheFormsThatTheDocumentsShow) {
  const auto devices = parse_devices(
      "0000:65:00.0@10.0.0.1/24>10.0.0.254;af:00.1,rx_vec_en=0@10.1.0.1/16;net_af_packet0,iface=eth1,framecnt=1024");
  ASSERT_TRUE(devices) << devices.error().message;
  ASSERT_EQ(devices->size(), 3u);
  EXPECT_TRUE((*devices)[0].pci);
  EXPECT_EQ((*devices)[0].whole(), "0000:65:00.0");
  EXPECT_EQ((*devices)[0].subnet->address, 0x0a000001u);
  EXPECT_EQ((*devices)[0].subnet->gateway, 0x0a0000feu);
  EXPECT_TRUE((*devices)[1].pci);
  EXPECT_EQ((*devices)[1].whole(), "af:00.1,rx_vec_en=0");
  EXPECT_EQ((*devices)[1].subnet->prefix, 16);
  EXPECT_FALSE((*devices)[2].pci);
  EXPECT_EQ((*devices)[2].driver(), "net_af_packet");
  EXPECT_EQ((*devices)[2].argument("iface"), "eth1");
  EXPECT_EQ((*devices)[2].argument("framecnt"), "1024");
  EXPECT_FALSE((*devices)[2].argument("frame"));
  EXPECT_FALSE((*devices)[2].subnet);
}

TEST(DpdkDevices, WhatIsWrongIsSaidWithWhatIsAllowed) {
  for (const char* text : {"",
                           ";",
                           "eth0",
                           "eth0@10.0.0.1/24",
                           "net_ring0",
                           "net_ring@10.0.0.1/24",
                           "0000:65:00.8@10.0.0.1/24",
                           "net_ring0@10.0.0.1",
                           "net_ring0@10.0.0.1/0",
                           "net_ring0@10.0.0.1/32",
                           "net_ring0@10.0.0.256/24",
                           "net_ring0@10.0.0/24",
                           "net_ring0@10.0.0.1/24>10.0.1.254",
                           "net_ring0@10.0.0.1/24>10.0.0.1",
                           "net_ring0@10.0.0.1/24>x",
                           "net_ring0@224.0.0.1/24",
                           "net_ring0@0.0.0.0/24",
                           "net_ring0@10.0.0.1/24/",
                           "net_ring0@10.0.0.1/24;net_ring0@10.0.0.2/24",
                           "net_ring0@fe80::1/64",
                           "net_af_xdp0,iface=eth1,queue_count=",
                           "net_af_xdp0,iface=eth1,queue_count=0",
                           "net_af_xdp0,iface=eth1,queue_count=-1",
                           "net_af_xdp0,iface=eth1,queue_count=2x",
                           "net_af_packet0,iface=eth1,qpairs=4294967297"}) {
    const auto devices = parse_devices(text);
    ASSERT_FALSE(devices) << text;
    EXPECT_EQ(devices.error().code, ErrorCode::kInvalidArgument) << text;
    EXPECT_GT(devices.error().message.size(), 20u) << text;
  }
}

TEST(DpdkDevices, QueuesAreThoseOfTheArgumentsOrTheUsual) {
  const auto devices = parse_devices(
      "net_af_xdp0,iface=eth1,queue_count=4;net_af_packet0,iface=eth1,qpairs=2;net_af_xdp1,iface=eth2;"
      "net_ring0@10.0.0.1/24;0000:65:00.0@10.0.0.2/24");
  ASSERT_TRUE(devices) << devices.error().message;
  const std::vector<std::uint32_t> expected{4, 2, 3, 1, 3};
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_EQ((*devices)[i].queues(3), expected[i]) << i;
}

TEST(DpdkSubnet, TheNextHopIsTheHostOrTheGateway) {
  Subnet subnet{0x0a000001, 24, {}};
  EXPECT_EQ(subnet.next_hop(0x0a0000ff), 0x0a0000ffu);
  EXPECT_FALSE(subnet.next_hop(0x0a000101));
  subnet.gateway = 0x0a0000fe;
  EXPECT_EQ(subnet.next_hop(0x0a000101), 0x0a0000feu);
  EXPECT_EQ(parse_ipv4_address("255.1.2.3"), 0xff010203u);
  EXPECT_EQ(to_text(0xff010203), "255.1.2.3");
  for (const char* text : {"", "1.2.3", "1.2.3.4.5", "1..2.3", "01.2.3.0004", "-1.2.3.4", "1.2.3.4 "}) {
    EXPECT_FALSE(parse_ipv4_address(text)) << text;
  }
}

}  // namespace
}  // namespace clustar::transport::io::dpdk
