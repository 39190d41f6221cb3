// UdpIo against what it did not send itself, and on networks that are slow, small or gone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "tests/conformance/udp_io_pair.h"
#include "transport/base/rng.h"

namespace clustar::transport::io::udp {
namespace {

using namespace std::chrono_literals;

std::vector<std::byte> datagram(std::size_t length, unsigned first) {
  std::vector<std::byte> bytes(length, std::byte{0x5a});
  if (length > 0) bytes[0] = static_cast<std::byte>(first);
  return bytes;
}

// Begins with the framing of a packet with something behind it.
std::vector<std::byte> packed(std::initializer_list<unsigned> framing, std::size_t more = 0) {
  std::vector<std::byte> bytes;
  for (const unsigned one : framing) bytes.push_back(static_cast<std::byte>(one));
  bytes.insert(bytes.end(), more, std::byte{0x5a});
  return bytes;
}

TEST(UdpFrame, ParsesWhatASenderMakesOnly) {
  EXPECT_FALSE(parse_frame({}));
  for (const unsigned first : {0u, unsigned{Header::kMax} + 1, 255u})
    EXPECT_FALSE(parse_frame(datagram(300, first))) << first;
  EXPECT_FALSE(parse_frame(datagram(1, 1)));
  EXPECT_FALSE(parse_frame(datagram(Header::kMax, Header::kMax)));
  const auto bytes = datagram(Header::kMax + 1, Header::kMax);
  const auto whole = parse_frame(bytes);
  ASSERT_TRUE(whole);
  EXPECT_EQ(whole->header.size(), Header::kMax);
  EXPECT_TRUE(whole->payload.empty());
  const auto shortest = datagram(3, 1);
  EXPECT_EQ(parse_frame(shortest)->payload.size(), 1u);
}

TEST(UdpWire, StrangersAreCountedAndNotHeard) {
  const auto io = must_open(loopback(1));
  RawSocket stranger;
  RawSocket friendly;
  ASSERT_TRUE(io->add_peer(friendly.address()));
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(stranger.send(io->local(), datagram(100, 4)));
  ASSERT_TRUE(friendly.send(io->local(), datagram(100, 4)));
  EXPECT_EQ(take(*io, 1).size(), 1u);
  EXPECT_TRUE(take(*io, 1).empty());
  EXPECT_EQ(io->counters().strangers, 50u);
  EXPECT_EQ(io->counters().packets_received, 1u);
}

TEST(UdpWire, APeersPortIsKnownOnItsOwnPathOnly) {
  const auto io = must_open(loopback(2));
  RawSocket raw;
  UdpAddress address = raw.address();
  address.ports.push_back(1);
  ASSERT_TRUE(io->add_peer(address));
  ASSERT_TRUE(raw.send(io->local(), datagram(10, 4), 0, 1));
  EXPECT_TRUE(take(*io, 1).empty());
  EXPECT_EQ(io->counters().strangers, 1u);
  ASSERT_TRUE(raw.send(io->local(), datagram(10, 4), 0, 0));
  EXPECT_EQ(take(*io, 1).size(), 1u);
}

TEST(UdpWire, MalformedDatagramsAreCountedAndHoldNoBuffer) {
  UdpOptions options = loopback(1);
  options.receive_buffers = 2;
  const auto io = must_open(options);
  RawSocket peer;
  ASSERT_TRUE(io->add_peer(peer.address()));
  const std::vector<std::vector<std::byte>> bad = {
      {},
      datagram(1, 1),
      datagram(300, Header::kMax + 1),
      datagram(300, 255),  // padding, and nothing before it
      datagram(10, 10),
      packed({0, 0, 0, 4}),           // no header
      packed({0, 4, 0, 0}, 3),        // a header that is longer than the datagram
      packed({0, 4, 0xff, 0xff}, 9),  // a payload that is
      packed({0, 4, 0}),
      packed({0})};
  for (int round = 0; round < 5; ++round) {
    for (const auto& one : bad) ASSERT_TRUE(peer.send(io->local(), one));
    EXPECT_TRUE(take(*io, 1).empty());
  }
  EXPECT_EQ(io->counters().malformed, 5 * bad.size());
  ASSERT_TRUE(peer.send(io->local(), datagram(11, 10)));
  EXPECT_EQ(take(*io, 1).size(), 1u);
}

TEST(UdpWire, PacketsThatShareADatagramArriveApart) {
  const auto io = must_open(loopback(1));
  RawSocket peer;
  ASSERT_TRUE(io->add_peer(peer.address()));
  auto bytes = packed({0, 2, 0, 3}, 5);
  for (const std::byte one : packed({0, 1, 0, 0}, 1)) bytes.push_back(one);
  const auto two = bytes;
  ASSERT_TRUE(peer.send(io->local(), two));  // the last one in the longer framing
  for (const std::byte one : datagram(7, 4)) bytes.push_back(one);
  ASSERT_TRUE(peer.send(io->local(), bytes));
  bytes = two;
  bytes.insert(bytes.end(), 9, kPadding);
  ASSERT_TRUE(peer.send(io->local(), bytes));
  bytes = two;
  bytes.push_back(std::byte{200});  // garbage behind them
  ASSERT_TRUE(peer.send(io->local(), bytes));
  const auto taken = take(*io, 9);
  ASSERT_EQ(taken.size(), 9u);
  const std::size_t headers[] = {2, 1, 2, 1, 4, 2, 1, 2, 1};
  const std::size_t payloads[] = {3, 0, 3, 0, 2, 3, 0, 3, 0};
  for (std::size_t i = 0; i < taken.size(); ++i) {
    EXPECT_EQ(taken[i].header.size(), headers[i]);
    EXPECT_EQ(taken[i].payload.size(), payloads[i]);
  }
  EXPECT_EQ(io->counters().malformed, 1u);
}

TEST(UdpWire, EveryGarbageDatagramIsEitherAPacketOrCounted) {
  for (const bool gro : {false, true}) {
    UdpOptions options = loopback(1);
    options.allow_gro = gro;
    const auto io = must_open(options);
    RawSocket peer;
    ASSERT_TRUE(io->add_peer(peer.address()));
    Rng rng(11);
    std::uint64_t sent = 0;
    std::uint64_t good = 0;
    for (int i = 0; i < 3000; ++i) {
      std::vector<std::byte> bytes(1 + rng.next() % 3000);
      for (std::byte& one : bytes) one = static_cast<std::byte>(rng.next() % 128);
      std::size_t segment = 1 + rng.next() % bytes.size();
      if (bytes.size() / segment >= 60) segment = bytes.size();
      if (!peer.send(io->local(), bytes, segment < bytes.size() ? segment : 0)) continue;
      for (std::size_t at = 0; at < bytes.size(); at += segment) {
        const std::size_t end = std::min(at + segment, bytes.size());
        for (std::size_t next = at; next < end;) {
          if (next > at && bytes[next] == kPadding) break;
          ++sent;
          const auto frame = parse_frame(std::span(bytes).subspan(next, end - next));
          if (!frame) break;
          ++good;
          next += frame->length;
        }
      }
      if (i % 20 == 19) take(*io, good - io->counters().packets_received);
    }
    take(*io, 1);
    EXPECT_EQ(io->counters().packets_received, good);
    EXPECT_EQ(io->counters().packets_received + io->counters().malformed, sent);
    EXPECT_GT(good, 1000u);
  }
}

TEST(UdpWire, AFloodOfStrangersDoesNotStopATransfer) {
  Pair pair(loopback(2));
  std::atomic<bool> stop{false};
  std::thread flood([&, to = pair.b->local()] {
    RawSocket stranger;
    while (!stop) stranger.send(to, datagram(64, 4));
  });
  // A path that is flooded may lose what its socket's buffer cannot hold; the other may not.
  std::size_t sent = 0;
  std::size_t received = 0;
  for (int i = 0; i < 20000 && (i < 200 || pair.b->counters().strangers < 1000); ++i) {
    pair.send(std::vector<TxPacket>(20, pair.packet(1, 1000, 1)));
    sent += 20;
    received += take(*pair.b, 20).size();
  }
  stop = true;
  flood.join();
  EXPECT_EQ(received, sent);
  EXPECT_GE(pair.b->counters().strangers, 1000u);
}

TEST(UdpWire, AnAbsentPeerIsNotTheDevicesEnd) {
  Pair pair(loopback(1));
  pair.b.reset();
  for (int i = 0; i < 20; ++i) {
    const TxPacket packet = pair.packet(1, 100);
    ASSERT_TRUE(pair.a->send(std::span(&packet, 1)));
    RxPacket none;
    ASSERT_EQ(pair.a->receive(std::span(&none, 1)).value(), 0u);
  }
}

// A socket without checksums is one that the kernel joins nothing for: what it says then stands for a device that
// cannot.
TEST(UdpWire, JoiningThatIsRefusedIsGivenUpAndLosesNothing) {
  Pair pair(loopback(1));
  if (!pair.a->offloads().gso) GTEST_SKIP() << "needs a kernel with UDP_SEGMENT";
  int changed = 0;
  for (int fd = 0; fd < 1024; ++fd) {
    SocketAddress address;
    socklen_t length = SocketAddress::capacity();
    if (::getsockname(fd, address.raw(), &length) != 0 || address.ipv6()) continue;
    if (address.raw()->sa_family != AF_INET || address.port() != pair.a->local().ports[0]) continue;
    const int on = 1;
    changed += setsockopt(fd, SOL_SOCKET, SO_NO_CHECK, &on, sizeof on) == 0;
  }
  ASSERT_EQ(changed, 1);
  std::vector<TxPacket> packets;
  for (std::uint32_t i = 0; i < 150; ++i) packets.push_back(pair.packet(i, 1000));
  pair.send(packets);
  const auto taken = take(*pair.b, 150);
  ASSERT_EQ(taken.size(), 150u);
  for (std::uint32_t i = 0; i < 150; ++i) EXPECT_EQ(number_of(taken[i].header), i);
  EXPECT_EQ(pair.a->counters().gso_fallbacks, 1u);
  EXPECT_FALSE(pair.a->offloads().gso);
}

TEST(UdpWire, AFullSocketIsBackPressureAndLosesNothing) {
  const std::string skip = in_own_network([] {
    const bool slow = shell("tc qdisc add dev lo root handle 1: htb default 1") &&
                      shell("tc class add dev lo parent 1: classid 1:1 htb rate 40mbit burst 16k cburst 16k") &&
                      shell("tc qdisc add dev lo parent 1:1 bfifo limit 64mb");
    if (!slow) GTEST_SKIP() << "needs tc and a kernel with htb and bfifo";
    for (const bool offloads : {true, false}) {
      UdpOptions options = loopback(2);
      options.allow_gso = options.allow_gro = offloads;
      options.send_buffer_bytes = 256 << 10;
      Pair pair(options);
      std::vector<TxPacket> packets;
      for (std::uint32_t i = 0; i < 1000; ++i) packets.push_back(pair.packet(i, 1400, i / 20 % 2));
      std::span<const TxPacket> rest = packets;
      std::vector<std::uint32_t> numbers;
      int sleeps = 0;
      for (int rounds = 0; !rest.empty() && rounds < 100000; ++rounds) {
        const auto taken = pair.a->send(rest);
        ASSERT_TRUE(taken) << taken.error().message;
        rest = rest.subspan(*taken);
        if (!rest.empty()) {
          pair.a->wait(1s);
          ++sleeps;
        }
        RxPacket burst[64];
        while (const std::size_t got = pair.b->receive(burst).value()) {
          for (const RxPacket& one : std::span(burst, got)) numbers.push_back(number_of(one.header));
          pair.b->release(std::span(burst, got));
        }
      }
      EXPECT_GT(pair.a->counters().back_pressure, 0u);
      EXPECT_LT(sleeps, 1000);  // woken by room, neither spinning nor sleeping out the second
      for (const Taken& one : take(*pair.b, packets.size() - numbers.size())) numbers.push_back(number_of(one.header));
      std::ranges::sort(numbers);
      ASSERT_EQ(numbers.size(), packets.size());
      for (std::uint32_t i = 0; i < numbers.size(); ++i) ASSERT_EQ(numbers[i], i);
      EXPECT_EQ(pair.a->counters().packets_sent, packets.size());
      EXPECT_EQ(pair.a->counters().unreachable, 0u);
    }
  });
  if (!skip.empty()) GTEST_SKIP() << skip;
}

TEST(UdpWire, ASmallerMtuIsNoticedAndSaid) {
  const std::string skip = in_own_network([] {
    for (const char* local : {"127.0.0.1", "::1"}) {
      if (!shell("ip link set lo mtu 9000")) GTEST_SKIP() << "needs ip, of the package iproute2";
      UdpOptions options = loopback(2);
      options.local = local;
      options.max_packet = 0;
      Pair pair(options);
      const std::size_t overhead = datagram_overhead(pair.a->local().ip.ipv6) + kFrameBytes;
      const std::size_t before = pair.a->capabilities().max_packet;
      EXPECT_EQ(before, 9000 - overhead);
      pair.send(std::vector<TxPacket>(10, pair.packet(1, before - 4)));
      ASSERT_TRUE(shell("ip link set lo mtu 1500"));
      const std::vector<TxPacket> large(10, pair.packet(2, before - 4));
      const auto refused = pair.a->send(large);
      ASSERT_FALSE(refused);
      EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
      EXPECT_EQ(pair.a->capabilities().max_packet, 1500 - overhead);
      EXPECT_EQ(pair.a->counters().mtu_changes, 1u);
      pair.send(std::vector<TxPacket>(30, pair.packet(3, 1500 - overhead - 4)));
      EXPECT_EQ(take(*pair.b, 40).size(), 40u);
      EXPECT_TRUE(pair.a->offloads().gso || !must_open(options)->offloads().gso);  // joining was not to blame
      // Those in front of what is too long now are on their way, and the rest is told of next time.
      ASSERT_TRUE(shell("ip link set lo mtu 1300"));
      std::vector<TxPacket> mixed(3, pair.packet(4, 100));
      mixed.push_back(pair.packet(5, 1400));
      EXPECT_EQ(pair.a->send(mixed).value(), 3u);
      EXPECT_FALSE(pair.a->send(std::span(mixed).subspan(3)));
      EXPECT_EQ(pair.a->capabilities().max_packet, 1300 - overhead);
      EXPECT_EQ(take(*pair.b, 3).size(), 3u);
    }
  });
  if (!skip.empty()) GTEST_SKIP() << skip;
}

TEST(UdpWire, WhatIsLongerThanABufferIsCounted) {
  const std::string skip = in_own_network([] {
    ASSERT_TRUE(shell("ip link set lo mtu 1500"));
    UdpOptions options = loopback(1);
    options.allow_gro = false;
    const auto io = must_open(options);
    ASSERT_TRUE(shell("ip link set lo mtu 9000"));
    RawSocket peer;
    ASSERT_TRUE(io->add_peer(peer.address()));
    ASSERT_TRUE(peer.send(io->local(), datagram(4000, 4)));
    ASSERT_TRUE(peer.send(io->local(), datagram(1400, 4)));
    EXPECT_EQ(take(*io, 2).size(), 1u);
    EXPECT_EQ(io->counters().truncated, 1u);
  });
  if (!skip.empty()) GTEST_SKIP() << skip;
}

TEST(UdpWire, AnUnreachablePeerLosesItsOwnPacketsOnly) {
  const std::string skip = in_own_network([] {
    ASSERT_TRUE(shell("ip addr add 10.88.0.1/24 dev lo"));
    UdpOptions options = loopback(1);
    options.local = "10.88.0.1";
    Pair pair(options);
    ASSERT_TRUE(shell("ip route add unreachable 10.99.0.1/32"));
    const PeerId nowhere = pair.a->add_peer({IpAddress::parse("10.99.0.1").value(), {4000}}).value();
    std::vector<TxPacket> packets(6, pair.packet(1, 100));
    for (std::size_t i = 0; i < packets.size(); i += 2) packets[i].peer = nowhere;
    EXPECT_EQ(pair.a->send(packets).value(), packets.size());
    EXPECT_EQ(pair.a->counters().unreachable, 3u);
    EXPECT_EQ(take(*pair.b, 3).size(), 3u);
  });
  if (!skip.empty()) GTEST_SKIP() << skip;
}

}  // namespace
}  // namespace clustar::transport::io::udp
