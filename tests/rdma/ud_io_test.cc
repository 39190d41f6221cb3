// What only the UD backend promises: bits on the wire, strangers, peers that do not answer, memory that goes, sleeping.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <thread>

#include "tests/dscp_sniffer.h"
#include "tests/rdma/ud_pair.h"

namespace clustar::tests {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using SteadyClock = std::chrono::steady_clock;
using ::testing::HasSubstr;

// IP headers of RoCE packets that come in at a network device.
class Sniffer {
 public:
  explicit Sniffer(const char* interface) : fd_(::socket(AF_PACKET, SOCK_DGRAM | SOCK_NONBLOCK, htons(ETH_P_IP))) {
    sockaddr_ll place{};
    place.sll_family = AF_PACKET;
    place.sll_protocol = htons(ETH_P_IP);
    place.sll_ifindex = static_cast<int>(if_nametoindex(interface));
    EXPECT_EQ(::bind(fd_, reinterpret_cast<const sockaddr*>(&place), sizeof place), 0);
  }
  ~Sniffer() { ::close(fd_); }
  Sniffer(const Sniffer&) = delete;
  Sniffer& operator=(const Sniffer&) = delete;

  struct Seen {
    int tos;
    int source_port;
  };
  std::vector<Seen> seen() {
    constexpr int kRoce = 4791;
    std::vector<Seen> all;
    std::uint8_t bytes[64];
    sockaddr_ll from{};
    for (socklen_t length = sizeof from;
         ::recvfrom(fd_, bytes, sizeof bytes, MSG_TRUNC, reinterpret_cast<sockaddr*>(&from), &length) >= 28;
         length = sizeof from) {
      if (from.sll_pkttype == PACKET_OUTGOING || bytes[9] != 17 || (bytes[22] << 8 | bytes[23]) != kRoce) continue;
      all.push_back({bytes[1], bytes[20] << 8 | bytes[21]});
    }
    return all;
  }

 private:
  int fd_;
};

// Of a network device, while it lives.
class LinkMtu {
 public:
  LinkMtu(const std::string& interface, const std::string& mtu)
      : set_("ip link set " + interface + " mtu "), before_(output_of("cat /sys/class/net/" + interface + "/mtu")) {
    output_of(set_ + mtu);
  }
  ~LinkMtu() { EXPECT_NO_THROW(output_of(set_ + before_)); }
  LinkMtu(const LinkMtu&) = delete;
  LinkMtu& operator=(const LinkMtu&) = delete;

 private:
  const std::string set_;
  const std::string before_;
};

class UdIoTest : public UdPair {};

TEST_F(UdIoTest, ClassAndEctAreOnTheWireAndPathsHaveSourcePortsOfTheirOwn) {
  connect();
  Sniffer wire("vb");
  std::vector<io::TxPacket> packets;
  for (unsigned i = 0; i < 64; ++i) {
    packets.push_back(packet(i));
    packets.back().traffic_class = static_cast<std::uint8_t>(i % 8);
    packets.back().path = static_cast<std::uint8_t>(i / 8);
    packets.back().ect = i % 3 == 0;
  }
  send(packets);
  ASSERT_EQ(collect(64).size(), 64u) << a->describe() << "; " << b->describe();
  std::multiset<int> expected;
  for (unsigned i = 0; i < 64; ++i) expected.insert(static_cast<int>(i % 8) << 5 | (i % 3 == 0 ? 2 : 0));
  std::multiset<int> found;
  std::set<int> ports;
  for (const Sniffer::Seen& one : wire.seen()) {
    found.insert(one.tos);
    ports.insert(one.source_port);
  }
  EXPECT_EQ(found, expected);
  EXPECT_GE(ports.size(), 7u) << "of 8 paths; two may be alike by chance";
}

TEST_F(UdIoTest, AMarkOfASwitchIsReportedAndOnlyWhereItIsAllowed) {
  connect();
  // ECT packets are marked instead of lost.
  const Netem congested("loss 100% ecn");
  std::vector<io::TxPacket> packets;
  for (unsigned i = 0; i < 32; ++i) {
    packets.push_back(packet(i));
    packets.back().ect = i % 2 == 0;
  }
  for (io::TxPacket& one : packets) one.traffic_class = 5;
  send(packets);
  const auto received = collect(17);
  EXPECT_EQ(received.size(), 16u);
  for (const Got& one : received) {
    EXPECT_EQ(one.number % 2, 0u);
    EXPECT_EQ(one.info.ecn, io::Ecn::kCe);
    EXPECT_EQ(one.info.traffic_class, 5);
  }
}

TEST_F(UdIoTest, APacketsOwnDscpIsOnTheWire) {
  connect();
  const DscpSniffer wire(DscpSniffer::open("vb"), 0, 1);
  const std::array<int, 3> wanted{184, 40, 0};
  std::vector<io::TxPacket> packets;
  for (unsigned i = 0; i < 30; ++i) {
    packets.push_back(packet(i));
    packets.back().traffic_class = 2;
    packets.back().dscp = static_cast<std::uint8_t>(wanted[i % 3]);
  }
  send(packets);
  EXPECT_EQ(collect(30).size(), 30u);
  const auto long_enough = [&](int tos) { return wire.seen(tos) >= 10 * kPayload; };
  for (int waits = 0; waits < 100 && !long_enough(2 << 5); ++waits) std::this_thread::sleep_for(milliseconds(10));
  EXPECT_TRUE(long_enough(184));
  EXPECT_TRUE(long_enough(40));
  EXPECT_TRUE(long_enough(2 << 5)) << "without one, that of its class";
}

TEST_F(UdIoTest, WhatComesThroughATroubledNetworkIsWhole) {
  connect();
  constexpr unsigned kPackets = 400;
  std::vector<Got> received;
  {
    // A flipped bit breaks the packet's ICRC, and the device drops it.
    const Netem trouble("delay 1ms reorder 20% loss 10% duplicate 10% corrupt 10%");
    for (unsigned i = 0; i < kPackets; i += 50) {
      std::vector<io::TxPacket> packets;
      for (unsigned k = i; k < i + 50; ++k) packets.push_back(packet(k));
      send(packets);
      for (Got& one : collect(100, milliseconds(50))) received.push_back(std::move(one));
    }
  }
  std::set<unsigned> numbers;
  for (const Got& one : received) {
    ASSERT_LT(one.number, kPackets);
    EXPECT_TRUE(whole(one)) << one.number;
    EXPECT_EQ(one.info.path, one.number % 8);
    numbers.insert(one.number);
  }
  EXPECT_LT(numbers.size(), kPackets * 95 / 100);
  EXPECT_GT(numbers.size(), kPackets * 60 / 100);
  EXPECT_GT(received.size(), numbers.size()) << "duplicates are delivered";
}

TEST_F(UdIoTest, StrangersAreCountedAndNotHeard) {
  connect();
  auto stranger = open("rxe_a");
  const auto to_b = stranger->add_peer(b->local()).value();
  must(await_ready(*stranger, to_b));
  std::vector<io::TxPacket> packets(8, packet(1));
  for (io::TxPacket& one : packets) {
    one.peer = to_b;
    EXPECT_EQ(stranger->send(std::span(&one, 1)).error().code, ErrorCode::kInvalidArgument) << "memory of another";
    one.payload = {};
  }
  send(packets, *stranger);
  const auto is_heard = [&](std::uint64_t strangers) {
    for (int i = 0; i < 100 && b->counters().strangers < strangers; ++i) {
      if (!collect(1, milliseconds(100)).empty()) return true;
    }
    return !collect(1, milliseconds(100)).empty();
  };
  EXPECT_FALSE(is_heard(8));
  EXPECT_EQ(b->counters().strangers, 8u);
  // A peer on another path than its queue pair's.
  auto crossed = b->local();
  std::rotate(crossed.queue_pairs.begin(), crossed.queue_pairs.begin() + 1, crossed.queue_pairs.end());
  must(a->remove_peer(to_peer));
  to_peer = must(a->add_peer(crossed));
  must(await_ready(*a, to_peer));
  send({packet(1)});
  EXPECT_FALSE(is_heard(9));
  EXPECT_EQ(b->counters().strangers, 9u);
  // A peer that does not know the key is dropped by the device.
  auto keyless = b->local();
  keyless.q_key ^= 1;
  must(a->remove_peer(to_peer));
  to_peer = must(a->add_peer(keyless));
  must(await_ready(*a, to_peer));
  send({packet(1)});
  EXPECT_TRUE(collect(1, milliseconds(100)).empty());
  EXPECT_EQ(b->counters().strangers, 9u);
  EXPECT_EQ(b->counters().malformed, 0u);
}

TEST_F(UdIoTest, APeerThatDoesNotAnswerHoldsUpNobodyForLong) {
  connect();
  auto nobody = b->local();
  nobody.gid.bytes[15] = 77;  // 10.9.0.77
  const auto begin = SteadyClock::now();
  const auto dead = must(a->add_peer(nobody));
  EXPECT_LT(SteadyClock::now() - begin, milliseconds(500)) << "it did not wait for ARP";
  io::TxPacket lost = packet(1);
  lost.peer = dead;
  std::vector<io::TxPacket> packets = {lost, packet(2), lost, packet(3)};
  send(packets);
  EXPECT_LT(SteadyClock::now() - begin, seconds(5));
  EXPECT_EQ(collect(2).size(), 2u);
  EXPECT_EQ(a->counters().unresolved, 2u);
  EXPECT_GT(a->counters().back_pressure, 0u);
  const auto ready = await_ready(*a, dead);
  ASSERT_FALSE(ready);
  EXPECT_THAT(ready.error().message, HasSubstr("10.9.0.77"));
  must(a->remove_peer(dead));
  mr.reset();
  a.reset();
  EXPECT_LT(SteadyClock::now() - begin, seconds(30));
}

TEST_F(UdIoTest, ALinkThatIsDownIsLossAndNotTheEnd) {
  connect();
  {
    const LinkDown down;
    send({packet(1), packet(2)});
    a->quiesce();
    EXPECT_TRUE(collect(1, milliseconds(50)).empty());
  }
  io::RxPacket none;
  EXPECT_EQ(must(a->receive(std::span(&none, 1))), 0u);
  EXPECT_GT(a->counters().port_errors, 0u);
  EXPECT_THAT(a->describe(), HasSubstr("the link went down"));
  // The neighbour may have to be found again.
  std::vector<Got> received;
  for (int i = 0; i < 100 && received.empty(); ++i) {
    send({packet(3)});
    received = collect(1, milliseconds(50));
  }
  ASSERT_FALSE(received.empty());
  EXPECT_TRUE(whole(received[0]));
  const auto limit = SteadyClock::now() + seconds(10);
  while (a->counters().renewed == 0 && SteadyClock::now() < limit) {
    must(a->receive(std::span(&none, 1)));
    a->wait(milliseconds(10));
  }
  EXPECT_GT(a->counters().renewed, 0u) << "its neighbour may have another address by now";
}

TEST_F(UdIoTest, ASilentPeerIsResolvedAnewAndPacketsGoOnMeanwhile) {
  connect();
  unsigned sent = 0;
  const auto limit = SteadyClock::now() + seconds(20);
  while (a->counters().renewed < 2 && SteadyClock::now() < limit) {
    io::TxPacket next = packet(sent++);
    next.traffic_class = static_cast<std::uint8_t>(sent % 2);  // of handles that were made later
    send({next});
    io::RxPacket none;
    EXPECT_EQ(must(a->receive(std::span(&none, 1))), 0u);
    EXPECT_EQ(collect(1).size(), 1u) << sent;
  }
  EXPECT_GE(a->counters().renewed, 2u);
  EXPECT_EQ(a->counters().unresolved, 0u);
  EXPECT_EQ(b->counters().renewed, 0u) << "it did not send";
}

TEST_F(UdIoTest, TheNumbersOfADeadProcessAreNotInTheWayOfItsSuccessor) {
  connect();
  const auto later = b->local();
  auto dead = later;
  for (std::uint32_t& number : dead.queue_pairs) number += 0x1000;
  dead.queue_pairs[2] = later.queue_pairs[5];
  ++dead.q_key;
  must(a->remove_peer(to_peer));
  const auto old = must(a->add_peer(dead));
  to_peer = must(a->add_peer(later));
  EXPECT_EQ(a->peers(), 1u);
  send({packet(1)});
  EXPECT_EQ(collect(1).size(), 1u);
  io::TxPacket lost = packet(2);
  lost.peer = old;
  send({lost});
  EXPECT_EQ(a->counters().unresolved, 1u);
  // It goes without its successor's numbers.
  must(a->remove_peer(old));
  io::TxPacket reply = packet(3);
  reply.payload = {};
  reply.peer = to_a;
  send({reply}, *b);
  io::RxPacket heard;
  std::size_t count = 0;
  for (const auto limit = SteadyClock::now() + seconds(5); count == 0 && SteadyClock::now() < limit;) {
    a->wait(milliseconds(10));
    count = must(a->receive(std::span(&heard, 1)));
  }
  ASSERT_EQ(count, 1u);
  EXPECT_EQ(heard.peer, to_peer);
  a->release(std::span(&heard, 1));
}

TEST_F(UdIoTest, ALongDatagramOfWhoKnowsTheKeyIsDroppedAndNotTheEnd) {
  const LinkMtu senders("va", "4200");
  const LinkMtu receivers("vb", "1500");
  connect();
  std::vector<std::byte> bytes(1400);
  const auto own = must(a->reg_mr(gdr::MemoryRef::host(bytes.data(), bytes.size())));
  io::TxPacket wrong = packet(2);
  wrong.payload = {own.get(), 0, bytes.size()};
  send({wrong, packet(10)});  // by the same path
  const auto received = collect(2, milliseconds(200));
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].number, 10u);
  EXPECT_EQ(b->counters().malformed, 1u);
}

// Packets that the network device holds back stop the queue pair, as a switch's pause does.
TEST_F(UdIoTest, WhoOnlyReceivesLearnsThatSettlingStoppedTheQueuePairs) {
  connect();
  {
    // Unlike netem, which lets the device have its buffers back at once.
    output_of("tc qdisc replace dev va root tbf rate 1kbit burst 2000 limit 1000000");
    std::vector<io::TxPacket> packets;
    for (unsigned i = 0; i < 200; ++i) packets.push_back(packet(8 * i));
    send(packets);
    std::thread([this] { a->quiesce(); }).join();
    output_of("tc qdisc del dev va root");
  }
  const auto armed = a->arm();
  ASSERT_FALSE(armed);
  EXPECT_THAT(armed.error().message, HasSubstr("did not send for 1 s"));
  io::RxPacket none;
  const auto received = a->receive(std::span(&none, 1));
  ASSERT_FALSE(received);
  EXPECT_EQ(received.error().message, armed.error().message);
}

TEST_F(UdIoTest, MoreThanTheWindowToAPeerThatDoesNotAnswerIsTakenAndLost) {
  connect();
  auto nobody = b->local();
  nobody.gid.bytes[15] = 77;  // 10.9.0.77
  io::TxPacket lost = packet(1);
  lost.peer = must(a->add_peer(nobody));
  const std::vector<io::TxPacket> packets(a->capabilities().in_flight + 100, lost);
  send({lost});
  // It is known by now that nobody answers.
  EXPECT_EQ(must(a->send(packets)), packets.size());
}

TEST_F(UdIoTest, MemoryMayGoRightAfterItWasSent) {
  connect();
  for (unsigned round = 0; round < 20; ++round) {
    std::vector<std::byte> bytes(32 * 500, static_cast<std::byte>(round));
    {
      const auto own = must(a->reg_mr(gdr::MemoryRef::host(bytes.data(), bytes.size())));
      std::vector<io::TxPacket> packets;
      for (unsigned i = 0; i < 32; ++i) {
        packets.push_back(packet(i));
        packets.back().payload = {own.get(), i * 500, 500};
      }
      send(packets);
    }
    std::fill(bytes.begin(), bytes.end(), std::byte{0xff});
    const auto received = collect(32);
    ASSERT_EQ(received.size(), 32u);
    for (const Got& one : received) EXPECT_EQ(one.payload, std::vector<std::byte>(500, static_cast<std::byte>(round)));
  }
}

// A caller that sleeps between any two packets misses none.
TEST_F(UdIoTest, ASleeperIsWokenByEachPacket) {
  connect();
  constexpr unsigned kRounds = 200;
  std::atomic<unsigned> heard{0};
  std::thread sleeper([&] {
    std::vector<pollfd> waited;
    for (const int fd : b->ready_fds()) waited.push_back({fd, POLLIN, 0});
    for (unsigned next = 0; next < kRounds;) {
      io::RxPacket got[4];
      const auto count = must(b->receive(got));
      b->release(std::span(got).first(count));
      heard = next += static_cast<unsigned>(count);
      if (count > 0 || must(b->arm()) == Duration(0)) continue;
      if (::poll(waited.data(), waited.size(), 5000) == 0) break;
    }
  });
  for (unsigned i = 0; i < kRounds && heard + 1 >= i; ++i) {
    send({packet(i)});
    const auto limit = SteadyClock::now() + seconds(6);
    while (heard <= i && SteadyClock::now() < limit) std::this_thread::sleep_for(std::chrono::microseconds(200));
    if (heard <= i) break;
  }
  sleeper.join();
  EXPECT_EQ(heard, kRounds);
  EXPECT_GT(must(b->arm()), Duration(0));
  pollfd quiet[] = {{b->ready_fds()[0], POLLIN, 0}};
  EXPECT_EQ(::poll(quiet, 1, 50), 0) << "readable though nothing came";
}

TEST_F(UdIoTest, PeersComeAndGoWhilePacketsAreUnderWay) {
  connect();
  for (unsigned round = 0; round < 30; ++round) {
    std::vector<io::TxPacket> packets;
    for (unsigned i = 0; i < 64; ++i) packets.push_back(packet(i));
    send(packets);
    must(a->remove_peer(to_peer));
    EXPECT_EQ(a->send(packets).error().code, ErrorCode::kInvalidArgument) << "a peer that is gone";
    to_peer = must(a->add_peer(b->local()));
    EXPECT_EQ(collect(64).size(), 64u);
  }
}

TEST_F(UdIoTest, SaysWhatIsWrongWithItsOptionsAndPeers) {
  connect();
  EXPECT_THAT(UdIo::open({.device = "rxe_z"}).error().message, HasSubstr("rxe_a"));
  EXPECT_THAT(UdIo::open({.device = "rxe_a", .paths = 17}).error().message, HasSubstr("1 to 16"));
  EXPECT_THAT(UdIo::open({.device = "rxe_a", .window = 15}).error().message, HasSubstr("16 to 32768"));
  EXPECT_FALSE(UdIo::open({.device = "rxe_a", .port = 2}));
  auto few = b->local();
  few.queue_pairs.pop_back();
  EXPECT_THAT(a->add_peer(few).error().message, HasSubstr("7 paths"));
  auto wrong = b->local();
  for (std::uint32_t& number : wrong.queue_pairs) number += 0x1000;
  wrong.queue_pairs[3] = 1;
  EXPECT_THAT(a->add_peer(wrong).error().message, HasSubstr("queue pair 1"));
  auto twice = b->local();
  for (std::uint32_t& number : twice.queue_pairs) number += 0x1000;
  twice.queue_pairs[3] = twice.queue_pairs[2];
  EXPECT_THAT(a->add_peer(twice).error().message, HasSubstr("twice"));
  EXPECT_THAT(a->add_peer(b->local()).error().message, HasSubstr("already"));
  EXPECT_EQ(a->peers(), 1u);
}

}  // namespace
}  // namespace clustar::tests
