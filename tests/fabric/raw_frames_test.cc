// Frames that no UDP socket sends: tags, other protocols, checksums left to others.
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstring>

#include "tests/fabric/switch_under_test.h"

namespace clustar::bench::fabric {
namespace {

using Bytes = std::vector<unsigned char>;

void append(Bytes& to, std::initializer_list<int> bytes) {
  for (const int one : bytes) to.push_back(static_cast<unsigned char>(one));
}

// Ethernet from host 1 to host 0, without its type.
Bytes addresses() { return {2, 0x58, 0, 0, 0, 1, 2, 0x58, 0, 0, 0, 2}; }

// IPv4 and UDP from 10.88.0.2 to 10.88.0.1, of `bytes` in all; no checksum of UDP.
Bytes datagram(std::uint8_t tos, std::size_t bytes) {
  Bytes ip;
  append(ip, {0x45, tos, static_cast<int>(bytes >> 8), static_cast<int>(bytes & 255), 0, 1, 0x40, 0, 64, 17, 0, 0});
  append(ip, {10, 88, 0, 2, 10, 88, 0, 1});
  unsigned sum = 0;
  for (std::size_t i = 0; i < ip.size(); i += 2) sum += static_cast<unsigned>(ip[i] << 8 | ip[i + 1]);
  sum = (sum & 0xffff) + (sum >> 16);
  sum = ~(sum + (sum >> 16)) & 0xffff;
  ip[10] = static_cast<unsigned char>(sum >> 8);
  ip[11] = static_cast<unsigned char>(sum & 255);
  const std::size_t udp = bytes - 20;
  append(ip, {0x30, 0, 0, 9, static_cast<int>(udp >> 8), static_cast<int>(udp & 255), 0, 0});
  ip.resize(bytes);
  return ip;
}

class RawFrames : public SwitchTest {
 protected:
  // From host 1; `head` is a struct virtio_net_hdr, empty for none. Waits until the port to host 0 has counted it.
  void send_frame(const Fabric& fabric, const Bytes& frame, const Bytes& head = {}) const {
    const auto seen = [&] {
      const ClassCounters to = counters(fabric).to_host();
      return to.packets + to.dropped();
    };
    const std::uint64_t before = seen();
    on_host(fabric, 1, [&] {
      const int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
      const int with_head = head.empty() ? 0 : 1;
      ASSERT_EQ(setsockopt(fd, SOL_PACKET, PACKET_VNET_HDR, &with_head, sizeof(with_head)), 0);
      sockaddr_ll to{};
      to.sll_family = AF_PACKET;
      to.sll_ifindex = static_cast<int>(if_nametoindex("eth0"));
      Bytes all = head;
      all.insert(all.end(), frame.begin(), frame.end());
      EXPECT_EQ(sendto(fd, all.data(), all.size(), 0, reinterpret_cast<const sockaddr*>(&to), sizeof(to)),
                static_cast<ssize_t>(all.size()));
      close(fd);
    });
    EXPECT_TRUE(eventually([&] { return seen() > before; }));
  }
};

TEST_F(RawFrames, ATagDoesNotHideTheClassAndOtherProtocolsGoFirst) {
  const Fabric fabric = must_switch(100'000'000, 0, {});
  Bytes tagged = addresses();
  append(tagged, {0x81, 0, 0, 5, 8, 0});
  const Bytes ip = datagram(tos_of(3), 100);
  tagged.insert(tagged.end(), ip.begin(), ip.end());
  send_frame(fabric, tagged);
  EXPECT_EQ(counters(fabric).classes[3].packets, 1U);
  Bytes other = addresses();
  append(other, {0x88, 0xb5});  // for experiments (IEEE 802)
  other.resize(100, 0xff);
  const std::uint64_t before = counters(fabric).classes[7].packets;
  send_frame(fabric, other);
  EXPECT_GT(counters(fabric).classes[7].packets, before);
}

// The kernel cuts nothing off before the place where a checksum is still to be put.
TEST_F(RawFrames, WhatCannotBeTrimmedIsDroppedByTheBuffer) {
  PortRules rules;
  rules.classes[1].trim = true;
  constexpr std::uint64_t kBuffer = 800'000;
  const Fabric fabric = must_switch(1'000'000, kBuffer, rules);
  unleash(fabric);
  const Receiver receiver(fabric);
  // Headers take half of the quarter on top that is theirs: the line needs 0.8 s until whole packets fit again, and
  // the next header still does.
  for (int i = 0; i < 100 && counters(fabric).to_host().depth_bytes < kBuffer * 9 / 8; ++i) {
    send(fabric, receiver, tos_of(1), 100, 1000);
  }
  const PortCounters before = counters(fabric);
  ASSERT_GT(before.classes[1].trimmed, 0U) << "the buffer is full";
  ASSERT_EQ(before.classes[1].dropped_buffer, 0U) << "headers have room";
  Bytes frame = addresses();
  append(frame, {8, 0});
  const Bytes ip = datagram(tos_of(1), 1400);
  frame.insert(frame.end(), ip.begin(), ip.end());
  Bytes head{1, 0, 0, 0, 0, 0, 0, 0, 0, 0};  // struct virtio_net_hdr: VIRTIO_NET_HDR_F_NEEDS_CSUM
  const std::uint16_t start = 600;
  std::memcpy(&head[6], &start, sizeof(start));
  send_frame(fabric, frame, head);
  const PortCounters after = counters(fabric);
  EXPECT_EQ(after.classes[1].trimmed, before.classes[1].trimmed);
  EXPECT_EQ(after.classes[1].dropped_buffer, before.classes[1].dropped_buffer + 1);
  EXPECT_EQ(after.classes[7].packets, before.classes[7].packets);
  EXPECT_EQ(after.classes[7].bytes, before.classes[7].bytes);
}

}  // namespace
}  // namespace clustar::bench::fabric
