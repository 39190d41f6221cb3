// What UdpIo promises beyond PacketIo: offloads that change nothing but the cost, bounded memory, peers, descriptors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iterator>

#include "tests/conformance/udp_io_pair.h"
#include "transport/base/rng.h"

namespace clustar::transport::io::udp {
namespace {

using ::testing::HasSubstr;
using namespace std::chrono_literals;

UdpOptions with(UdpOptions options, bool gso, bool gro) {
  options.allow_gso = gso;
  options.allow_gro = gro;
  return options;
}

TEST(UdpIo, OptionsThatCannotBeAreRefusedWithAReason) {
  const auto refused = [](auto&& change, const char* says) {
    UdpOptions options = loopback();
    change(options);
    const auto io = UdpIo::open(options);
    ASSERT_FALSE(io);
    EXPECT_THAT(io.error().message, HasSubstr(says));
  };
  refused([](UdpOptions& o) { o.paths = 0; }, "paths");
  refused([](UdpOptions& o) { o.paths = 33; }, "1 to 32");
  refused([](UdpOptions& o) { o.send_batch = 0; }, "send_batch");
  refused([](UdpOptions& o) { o.receive_batch = 257; }, "receive_batch");
  refused([](UdpOptions& o) { o.receive_buffers = 0; }, "receive_buffers");
  refused([](UdpOptions& o) { o.max_packet = 10; }, "max_packet");
  refused([](UdpOptions& o) { o.first_port = 65533; }, "first_port");
  refused([](UdpOptions& o) { o.local = "no-such-if0"; }, "no-such-if0");
  refused([](UdpOptions& o) { o.local = "0.0.0.0"; }, "one interface");
  refused([](UdpOptions& o) { o.local = "fe80::1"; }, "link-local");
  refused([](UdpOptions& o) { o.local = "192.0.2.77"; }, "192.0.2.77");  // not of this host
}

TEST(UdpIo, AnInterfaceNameWillDoAndPortsMayBeGiven) {
  UdpOptions options = loopback(3);
  options.local = "lo";
  const auto any = must_open(options);
  EXPECT_EQ(any->local().ip.to_string(), "127.0.0.1");
  ASSERT_EQ(any->local().ports.size(), 3u);
  options.first_port = any->local().ports[0];
  EXPECT_FALSE(UdpIo::open(options));  // taken
}

TEST(UdpIo, OffloadsChangeNothingButTheCost) {
  std::vector<std::vector<Taken>> seen;
  for (const bool gso : {false, true}) {
    for (const bool gro : {false, true}) {
      Pair pair(with(loopback(), gso, gro));
      Rng rng(3);  // the same packets each time: runs of equal ones, then shorter ones, other paths and classes
      std::vector<TxPacket> packets;
      for (std::uint32_t number = 0; packets.size() < 2000;) {
        const std::size_t run = 1 + rng.next() % 90;
        const std::size_t length = rng.next() % (1472 - Header::kMax);
        const auto path = static_cast<std::uint8_t>(rng.next() % 4);
        const auto traffic_class = static_cast<std::uint8_t>(rng.next() % 8);
        for (std::size_t i = 0; i < run; ++i, ++number) {
          packets.push_back(pair.packet(number, i + 1 < run ? length : length / 2, path, number * 16));
          packets.back().traffic_class = traffic_class;
          packets.back().ect = number % 200 < 100;
          if (number % 7 == 0) packets.back().header = Header(1 + number % Header::kMax);
        }
      }
      std::vector<Taken> taken;
      for (std::size_t i = 0; i < packets.size(); i += 250) {
        const auto some = std::span(packets).subspan(i, std::min<std::size_t>(250, packets.size() - i));
        pair.send(some);
        std::ranges::move(take(*pair.b, some.size()), std::back_inserter(taken));
      }
      EXPECT_EQ(taken.size(), packets.size());
      std::ranges::stable_sort(taken, {}, &Taken::path);  // paths are not ordered among each other
      seen.push_back(std::move(taken));
      EXPECT_EQ(pair.a->counters().packets_sent, packets.size());
      EXPECT_EQ(pair.a->counters().gso_fallbacks, 0u);
    }
  }
  for (const auto& one : seen) EXPECT_TRUE(one == seen[0]);
}

TEST(UdpIo, ARunOfEqualPacketsIsOneMessageAndItsEndMayBeShorter) {
  Pair pair(loopback());
  if (!pair.a->offloads().gso || !pair.b->offloads().gro) GTEST_SKIP() << "needs a kernel with UDP_SEGMENT and UDP_GRO";
  std::vector<TxPacket> packets(40, pair.packet(1, 1000));
  packets.push_back(pair.packet(1, 10));
  pair.send(packets);
  EXPECT_EQ(take(*pair.b, 41).size(), 41u);
  EXPECT_EQ(pair.a->counters().messages_sent, 1u);
  EXPECT_EQ(pair.a->counters().send_calls, 1u);
  EXPECT_EQ(pair.b->counters().messages_received, 1u);
  EXPECT_EQ(pair.b->counters().receive_calls, 1u);
  // 64 datagrams at most, and no more bytes than one IP packet: 70 short ones are two messages, 60 long ones as well.
  pair.send(std::vector<TxPacket>(70, pair.packet(1, 600)));
  EXPECT_EQ(pair.a->counters().messages_sent, 3u);
  pair.send(std::vector<TxPacket>(60, pair.packet(1, 1400)));
  EXPECT_EQ(pair.a->counters().messages_sent, 5u);
  EXPECT_EQ(pair.a->counters().send_calls, 3u);
  EXPECT_EQ(take(*pair.b, 130).size(), 130u);
}

TEST(UdpIo, AnIdleReceiveIsOneSystemCall) {
  const auto io = must_open(loopback(8));
  RxPacket one;
  for (int i = 0; i < 100; ++i) EXPECT_EQ(io->receive(std::span(&one, 1)).value(), 0u);
  EXPECT_EQ(io->counters().poll_calls, 100u);
  EXPECT_EQ(io->counters().receive_calls, 0u);
}

TEST(UdpIo, ClassesAndEctTravelAsDscpAndEcn) {
  RawSocket raw;
  const auto io = must_open(loopback(1));
  const PeerId peer = io->add_peer(raw.address()).value();
  for (int i = 0; i < 16; ++i) {
    TxPacket packet;
    packet.peer = peer;
    packet.traffic_class = static_cast<std::uint8_t>(i / 2);
    packet.ect = i % 2 == 1;
    packet.header = Header(1);
    ASSERT_EQ(io->send(std::span(&packet, 1)).value(), 1u);
    EXPECT_EQ(raw.receive_tos(), ((i / 2) << 3) << 2 | (packet.ect ? 2 : 0));
  }
}

TEST(UdpIo, TheLargestPacketOfLoopbackFitsAndNotOneByteMore) {
  UdpOptions options = loopback(1);
  options.max_packet = 0;
  Pair pair(options);
  const std::size_t most = pair.a->capabilities().max_packet;
  EXPECT_EQ(most, 65506u);  // 65,535 less IPv4's 20, UDP's 8 and the frame's 1
  const TxPacket packets[] = {pair.packet(1, most - 4), pair.packet(2, most - 4)};
  pair.send(packets);
  const auto taken = take(*pair.b, 2);
  ASSERT_EQ(taken.size(), 2u);
  EXPECT_TRUE(std::ranges::equal(taken[1].payload, std::span(pair.bytes).first(most - 4)));
  const TxPacket more = pair.packet(1, most - 3);
  const auto refused = pair.a->send(std::span(&more, 1));
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("65506"));
}

TEST(UdpIo, WhenAllBuffersAreOutNothingIsReadUntilOneIsReleased) {
  UdpOptions options = with(loopback(2), false, false);
  options.receive_buffers = 4;
  Pair pair(options);
  std::vector<TxPacket> packets;
  for (std::uint32_t i = 0; i < 20; ++i) packets.push_back(pair.packet(i, 100, i % 2));
  pair.send(packets);
  std::vector<RxPacket> held(20);
  std::size_t count = 0;
  for (int i = 0; i < 10; ++i) count += pair.b->receive(std::span(held).subspan(count)).value();
  EXPECT_EQ(count, 4u);
  EXPECT_GT(pair.b->counters().pool_empty, 0u);
  // The sockets are readable, yet there is nothing to wake up for.
  const auto before = std::chrono::steady_clock::now();
  pair.b->wait(20ms);
  EXPECT_GE(std::chrono::steady_clock::now() - before, 19ms);
  pair.b->release(std::span(held).first(4));
  EXPECT_EQ(take(*pair.b, 16).size(), 16u);
  EXPECT_EQ(pair.b->counters().kernel_drops, 0u);
}

TEST(UdpIo, ACoalescedBufferReturnsWithItsLastPacket) {
  UdpOptions options = loopback(1);
  options.receive_buffers = 1;
  Pair pair(options);
  if (!pair.a->offloads().gso || !pair.b->offloads().gro) GTEST_SKIP() << "needs a kernel with UDP_SEGMENT and UDP_GRO";
  for (int round = 0; round < 3; ++round) {
    pair.send(std::vector<TxPacket>(10, pair.packet(1, 500)));
    pair.send(std::vector<TxPacket>(1, pair.packet(2, 500)));
    RxPacket held[11];
    ASSERT_EQ(pair.b->receive(std::span(held, 3)).value(), 3u);
    pair.b->release(std::span(held, 3));
    ASSERT_EQ(pair.b->receive(std::span(held, 11)).value(), 7u);  // the rest of the one buffer
    EXPECT_EQ(pair.b->receive(std::span(held + 7, 1)).value(), 0u);
    pair.b->release(std::span(held + 1, 6));
    EXPECT_EQ(pair.b->receive(std::span(held + 7, 1)).value(), 0u);
    pair.b->release(std::span(held, 1));
    ASSERT_EQ(pair.b->receive(std::span(held, 1)).value(), 1u);
    EXPECT_EQ(number_of(held[0].header), 2u);
    pair.b->release(std::span(held, 1));
  }
}

TEST(UdpIo, SmallNeighboursShareADatagramAndArriveApart) {
  for (const bool gso : {true, false}) {
    UdpOptions options = with(loopback(), gso, gso);
    options.max_packet = 1400;
    Pair pair(options);
    std::vector<TxPacket> packets;
    for (std::uint32_t i = 0; i < 40; ++i) packets.push_back(pair.packet(i, i % 3 == 0 ? 0 : i));
    packets[20].path = 1;  // another socket
    packets[30].traffic_class = 3;
    pair.send(packets);
    const auto taken = take(*pair.b, packets.size());
    ASSERT_EQ(taken.size(), packets.size());
    std::vector<std::uint32_t> numbers;
    for (const auto& one : taken) {
      const std::uint32_t number = number_of(one.header);
      EXPECT_EQ(one.payload.size(), number % 3 == 0 ? 0 : number);
      EXPECT_EQ(one.path, number == 20 ? 1 : 0);
      EXPECT_EQ(one.traffic_class, number == 30 ? 3 : packets[0].traffic_class);
      if (number != 20) numbers.push_back(number);
    }
    EXPECT_TRUE(std::ranges::is_sorted(numbers));
    EXPECT_LE(pair.a->counters().messages_sent, 6u);  // 4 runs, of which one may need a second datagram
  }
}

TEST(UdpIo, ALittleLessThanItsNeighboursDoesNotEndARun) {
  Pair pair(loopback());
  if (!pair.a->offloads().gso) GTEST_SKIP() << "needs a kernel with UDP_SEGMENT";
  std::vector<TxPacket> packets;
  for (std::uint32_t i = 0; i < 30; ++i) packets.push_back(pair.packet(i, i % 3 == 2 ? 1350 - i : 1400));
  pair.send(packets);
  const auto taken = take(*pair.b, packets.size());
  ASSERT_EQ(taken.size(), packets.size());
  for (std::uint32_t i = 0; i < taken.size(); ++i) {
    EXPECT_EQ(number_of(taken[i].header), i);
    EXPECT_EQ(taken[i].payload.size(), packets[i].payload.length);
  }
  EXPECT_EQ(pair.a->counters().messages_sent, 1u);
  EXPECT_EQ(pair.b->counters().malformed, 0u);
}

TEST(UdpIo, MoreSmallPacketsThanAMessageHasPiecesAreAllSent) {
  Pair pair(loopback());
  std::vector<TxPacket> packets(3000, pair.packet(1, 5));
  pair.send(packets);
  EXPECT_EQ(take(*pair.b, packets.size()).size(), packets.size());
}

TEST(UdpIo, WhatASocketsBufferDidNotHoldIsCounted) {
  UdpOptions small = with(loopback(1), true, false);
  small.receive_buffer_bytes = 64 << 10;
  Pair pair(with(loopback(1), true, false), small);
  pair.send(std::vector<TxPacket>(2000, pair.packet(1, 1000)));
  std::size_t taken = take(*pair.b, 2000).size();
  EXPECT_LT(taken, 2000u);
  pair.send(std::vector<TxPacket>(1, pair.packet(1, 1000)));  // the count comes with the next that is received
  taken += take(*pair.b, 1).size();
  EXPECT_EQ(taken + pair.b->counters().kernel_drops, 2001u);
}

TEST(UdpIo, ABusyPathDoesNotHideAnother) {
  UdpOptions options = with(loopback(4), true, false);
  options.receive_batch = 4;
  Pair pair(options);
  pair.send(std::vector<TxPacket>(500, pair.packet(1, 600, 1)));
  pair.send(std::vector<TxPacket>(1, pair.packet(2, 200, 0)));
  pair.send(std::vector<TxPacket>(1, pair.packet(3, 200, 3)));
  std::vector<std::uint32_t> seen;
  RxPacket burst[8];
  for (int calls = 0; calls < 3; ++calls) {
    const std::size_t received = pair.b->receive(burst).value();
    for (const RxPacket& one : std::span(burst, received)) seen.push_back(number_of(one.header));
    pair.b->release(std::span(burst, received));
  }
  EXPECT_THAT(seen, ::testing::Contains(2u));
  EXPECT_THAT(seen, ::testing::Contains(3u));
  take(*pair.b, 500);
}

TEST(UdpIo, PeersThatCannotBeAreRefused) {
  const auto io = must_open(loopback(2));
  UdpAddress address{IpAddress::parse("127.0.0.1").value(), {1000, 1001}};
  ASSERT_TRUE(io->add_peer(address));
  EXPECT_FALSE(io->add_peer(address));  // a peer already
  EXPECT_FALSE(io->add_peer({address.ip, {2000}}));
  EXPECT_FALSE(io->add_peer({address.ip, {2000, 2001, 2002}}));
  EXPECT_FALSE(io->add_peer({address.ip, {2000, 0}}));
  EXPECT_FALSE(io->add_peer({IpAddress::parse("::1").value(), {2000, 2001}}));
  EXPECT_FALSE(io->add_peer({IpAddress::parse("0.0.0.0").value(), {2000, 2001}}));
  EXPECT_TRUE(io->add_peer({address.ip, {1001, 1000}}));  // the same ports on other paths are another end
  EXPECT_EQ(io->peers(), 2u);
}

TEST(UdpIo, ARemovedPeerIsAStrangerAndItsNumberIsNotReused) {
  Pair pair(loopback());
  pair.send(std::vector<TxPacket>(10, pair.packet(1, 600)));
  RxPacket held[10];
  ASSERT_EQ(pair.b->receive(std::span(held, 4)).value(), 4u);
  ASSERT_TRUE(pair.b->remove_peer(pair.a_of_b));
  EXPECT_FALSE(pair.b->remove_peer(pair.a_of_b));
  EXPECT_TRUE(take(*pair.b, 1).empty());
  EXPECT_EQ(pair.b->counters().strangers, 6u);
  EXPECT_EQ(held[3].payload.size(), 600u);  // what was received stays valid
  pair.b->release(std::span(held, 4));
  pair.send(std::vector<TxPacket>(5, pair.packet(1, 600)));
  EXPECT_TRUE(take(*pair.b, 1).empty());
  EXPECT_EQ(pair.b->counters().strangers, 11u);
  const PeerId again = pair.b->add_peer(pair.a->local()).value();
  EXPECT_NE(again, pair.a_of_b);
  pair.send(std::vector<TxPacket>(5, pair.packet(1, 100)));
  const auto taken = take(*pair.b, 5);
  ASSERT_EQ(taken.size(), 5u);
  EXPECT_EQ(taken[0].peer, again);
  TxPacket to_the_old;
  to_the_old.peer = pair.a_of_b;
  to_the_old.header = Header(1);
  EXPECT_FALSE(pair.b->send(std::span(&to_the_old, 1)));
}

TEST(UdpIo, MemoryThatIsGoneRefusesItsPacketOnly) {
  Pair pair(loopback(1));
  const std::size_t page = 65536;
  void* gone = mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(gone, MAP_FAILED);
  const auto mr = pair.a->reg_mr(gdr::MemoryRef::host(gone, page)).value();
  munmap(gone, page);
  std::vector<TxPacket> packets(10, pair.packet(1, 100));
  packets[5].payload = {mr.get(), 0, 100};
  EXPECT_EQ(pair.a->send(packets).value(), 5u);
  const auto refused = pair.a->send(std::span(packets).subspan(5));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  pair.send(std::span(packets).subspan(6));
  EXPECT_EQ(take(*pair.b, 9).size(), 9u);
  EXPECT_EQ(pair.a->offloads().gso, must_open(loopback(1))->offloads().gso);  // joining is not to blame
}

TEST(UdpIo, OnlyHostMemoryIsRegistered) {
  const auto io = must_open(loopback(1));
  std::byte byte{};
  const auto cuda = io->reg_mr({gdr::MemoryKind::kCuda, &byte, 1, -1, 0});
  ASSERT_FALSE(cuda);
  EXPECT_EQ(cuda.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(cuda.error().message, HasSubstr("cuda"));
}

TEST(UdpIo, WaitEndsWithItsTimeoutAndWithAPacket) {
  Pair pair(loopback());
  const auto elapsed = [&](Duration timeout) {
    const auto before = std::chrono::steady_clock::now();
    pair.b->wait(timeout);
    return std::chrono::steady_clock::now() - before;
  };
  EXPECT_GE(elapsed(5ms), 5ms);
  // One that waits is slow each time, one that is kept waiting by a busy machine is not.
  Duration least = Duration::max();
  for (int i = 0; i < 10; ++i) least = std::min<Duration>(least, elapsed(0ms));
  EXPECT_LT(least, 4ms);
  EXPECT_LT(elapsed(-1s), 1s);
  pair.send(std::vector<TxPacket>(2, pair.packet(1, 100, 3)));
  EXPECT_LT(elapsed(10s), 5s);
  RxPacket one;
  ASSERT_EQ(pair.b->receive(std::span(&one, 1)).value(), 1u);
  EXPECT_LT(elapsed(10s), 5s);  // the second was read with the first and waits
  pair.b->release(std::span(&one, 1));
  EXPECT_EQ(take(*pair.b, 1).size(), 1u);
}

TEST(UdpIo, TwoThousandLivesLeaveNoDescriptor) {
  const auto open_files = [] {
    const std::filesystem::directory_iterator all("/proc/self/fd");
    return std::distance(begin(all), end(all));
  };
  UdpOptions small = loopback(2);
  small.receive_buffers = 4;  // most of a life would be their pages
  const auto before = open_files();
  for (int i = 0; i < 2000; ++i) {
    const auto io = must_open(small);
    ASSERT_TRUE(io->add_peer({io->local().ip, {1000, 1001}}));
    UdpOptions taken = small;
    taken.first_port = static_cast<std::uint16_t>(std::min<int>(io->local().ports[0], 65534));
    if (i % 100 == 0) {
      ASSERT_FALSE(UdpIo::open(taken));
    }
  }
  EXPECT_EQ(open_files(), before);
}

// As where control connections run over another network: their host is none that packets go to.
TEST(UdpIo, PeersNameTheirHostsOnlyWhereControlIsApart) {
  const net::Endpoint control = endpoint_of(IpAddress::parse("127.0.0.9").value());
  UdpOptions options;
  options.local = "127.0.0.1";
  options.paths = 2;
  const auto usual = UdpIo::open(options).value();
  const auto to_usual = UdpIo::open(options).value();
  options.apart = true;
  const auto apart = UdpIo::open(options).value();
  const auto to_apart = UdpIo::open(options).value();
  EXPECT_TRUE(apart->add_peer(to_apart->local_address(), control));
  EXPECT_TRUE(usual->add_peer(to_usual->local_address(), endpoint_of(usual->local().ip)));
  const auto third = usual->add_peer(to_apart->local_address(), control);
  ASSERT_FALSE(third);
  EXPECT_EQ(third.error().code, ErrorCode::kRemote);
  EXPECT_NE(third.error().message.find("CLUSTAR_CONTROL_IFNAME"), std::string::npos) << third.error().message;
  EXPECT_FALSE(apart->add_peer(to_usual->local_address(), control)) << "names no host";
}

}  // namespace
}  // namespace clustar::transport::io::udp
