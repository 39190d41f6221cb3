// Random bursts through UdpIo: however packets share datagrams and messages, what arrives is what was sent.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>

#include "tests/conformance/udp_io_pair.h"
#include "transport/base/rng.h"

namespace clustar::transport::io::udp {
namespace {

constexpr std::size_t kPeers = 2;
constexpr std::size_t kPaths = 3;
constexpr std::size_t kClasses = 3;
constexpr std::size_t kMostBytes = 3000;  // of a packet
constexpr std::size_t kMostPackets = 600;

struct Setting {
  bool gso;
  bool gro;
  std::size_t max_packet;
  std::uint32_t send_batch;
};

// By peer, path and class, within which the order of sending holds.
using Streams = std::map<std::array<std::size_t, 3>, std::vector<Taken>>;

class Bench {
 public:
  explicit Bench(const Setting& setting) : rng_(setting.max_packet * 4 + setting.gso * 2 + setting.gro) {
    UdpOptions options = loopback(kPaths);
    options.allow_gso = setting.gso;
    options.allow_gro = setting.gro;
    options.max_packet = setting.max_packet;
    options.send_batch = setting.send_batch;
    sender_ = must_open(options);
    for (std::size_t i = 0; i < kPeers; ++i) {
      receivers_.push_back(must_open(options));
      peers_.push_back(sender_->add_peer(receivers_[i]->local()).value());
      from_.push_back(receivers_[i]->add_peer(sender_->local()).value());
    }
    for (std::byte& one : bytes_) one = static_cast<std::byte>(rng_.next());
    mr_ = sender_->reg_mr(gdr::MemoryRef::host(bytes_.data(), bytes_.size())).value();
    most_ = std::min(kMostBytes, sender_->capabilities().max_packet);
  }

  // A burst that no socket's buffer is too small for, received before this returns.
  void run_case() {
    const std::vector<TxPacket> packets = burst();
    Streams sent;
    for (const TxPacket& packet : packets) keep(sent, packet);
    send(packets);
    Streams received;
    for (std::size_t i = 0; i < kPeers; ++i) {
      const auto expected = static_cast<std::size_t>(
          std::ranges::count_if(packets, [&](const TxPacket& one) { return one.peer == peers_[i]; }));
      for (Taken& one : take(*receivers_[i], expected)) {
        received[{i, one.path, one.traffic_class}].push_back(std::move(one));
      }
    }
    EXPECT_TRUE(sent == received);
  }

  void check_counters() const {
    const UdpCounters& counters = sender_->counters();
    EXPECT_EQ(counters.gso_fallbacks, 0u);
    EXPECT_LT(counters.messages_sent, counters.packets_sent);
    for (const auto& receiver : receivers_) {
      EXPECT_EQ(receiver->counters().malformed, 0u);
      EXPECT_EQ(receiver->counters().kernel_drops, 0u);
    }
  }

 private:
  std::size_t below(std::size_t limit) { return static_cast<std::size_t>(rng_.below(limit)); }

  // Mostly like the one before, so that neighbours share, join, end a run or are filled up.
  TxPacket next(const TxPacket& before) {
    TxPacket packet = before;
    if (below(30) == 0) packet.peer = peers_[below(kPeers)];
    if (below(30) == 0) packet.path = static_cast<std::uint8_t>(below(kPaths));
    if (below(30) == 0) packet.traffic_class = static_cast<std::uint8_t>(below(kClasses));
    if (below(30) == 0) packet.ect = !packet.ect;
    std::size_t length = before.header.bytes().size() + before.payload.length;
    switch (below(8)) {
      case 0: length = 1 + below(most_); break;
      case 1: length = 1 + below(std::min<std::size_t>(most_, 600)); break;
      case 2: length = most_ - below(most_ / 6); break;
      case 3: length = most_; break;
      default: break;
    }
    const std::size_t most_header = std::min(length, Header::kMax);
    packet.header = Header(below(4) == 0 ? most_header : 1 + below(most_header));
    for (std::byte& one : packet.header.bytes()) one = static_cast<std::byte>(rng_.next());
    packet.payload = {mr_.get(), below(bytes_.size() - most_), length - packet.header.bytes().size()};
    return packet;
  }

  std::vector<TxPacket> burst() {
    constexpr std::size_t kBookkeeping = 1024;  // of the kernel, for a datagram
    const std::size_t budget = sender_->receive_buffer_bytes() / 4;
    const std::size_t most = 1 + below(below(16) == 0 ? kMostPackets : 60);
    std::vector<TxPacket> packets;
    TxPacket packet;
    packet.peer = peers_[0];
    packet.header = Header(1);
    for (std::size_t used = 0; packets.size() < most && used < budget;) {
      packet = next(packet);
      used += packet.header.bytes().size() + packet.payload.length + kBookkeeping;
      packets.push_back(packet);
    }
    return packets;
  }

  void keep(Streams& streams, const TxPacket& packet) const {
    const auto peer = static_cast<std::size_t>(std::ranges::find(peers_, packet.peer) - peers_.begin());
    const auto header = packet.header.bytes();
    const auto payload = std::span(bytes_).subspan(packet.payload.offset, packet.payload.length);
    streams[{peer, packet.path, packet.traffic_class}].push_back({from_[peer],
                                                                  packet.path,
                                                                  packet.traffic_class,
                                                                  packet.ect ? Ecn::kEct0 : Ecn::kNotEct,
                                                                  {header.begin(), header.end()},
                                                                  {payload.begin(), payload.end()}});
  }

  void send(std::span<const TxPacket> packets) {
    for (int rounds = 0; !packets.empty(); ++rounds) {
      ASSERT_LT(rounds, 1000);
      const auto taken = sender_->send(packets);
      ASSERT_TRUE(taken) << taken.error().message;
      packets = packets.subspan(*taken);
      if (!packets.empty()) sender_->wait(std::chrono::milliseconds(1));
    }
  }

  Rng rng_;
  std::unique_ptr<UdpIo> sender_;
  std::vector<std::unique_ptr<UdpIo>> receivers_;
  std::vector<PeerId> peers_;  // of the sender
  std::vector<PeerId> from_;   // the sender, as each receiver numbers it
  std::vector<std::byte> bytes_ = std::vector<std::byte>(16 << 10);
  std::unique_ptr<Mr> mr_;
  std::size_t most_ = 0;
};

TEST(UdpPacking, EveryBurstArrivesExactlyAndInOrder) {
  for (const bool gso : {true, false}) {
    for (const bool gro : {true, false}) {
      for (const std::size_t max_packet : {std::size_t{100}, std::size_t{1472}, std::size_t{0}}) {
        const std::uint32_t send_batch = max_packet == 100 ? 3 : 64;
        Bench bench({gso, gro, max_packet, send_batch});
        for (int i = 0; i < 250; ++i) {
          bench.run_case();
          ASSERT_FALSE(::testing::Test::HasFailure())
              << "gso " << gso << " gro " << gro << " max_packet " << max_packet << " case " << i;
        }
        bench.check_counters();
      }
    }
  }
}

TEST(UdpPacking, WhatSharesTheLastDatagramDoesNotMakeAMessageTooLong) {
  Pair pair(loopback());
  const bool gso = pair.a->offloads().gso;
  std::vector<TxPacket> packets(44, pair.packet(1, 1468));  // 44 * 1473 = 64,812 bytes of 65,507
  packets.resize(50, pair.packet(2, 496));
  pair.send(packets);
  EXPECT_EQ(take(*pair.b, packets.size()).size(), packets.size());
  EXPECT_EQ(pair.a->counters().gso_fallbacks, 0u);
  EXPECT_EQ(pair.a->offloads().gso, gso);
}

TEST(UdpPacking, TheFramingOfWhatSharesCountsInTheLengthOfAMessage) {
  UdpOptions options = loopback();
  options.max_packet = 1472;
  Pair pair(options);
  const bool gso = pair.a->offloads().gso;
  // Three in a datagram; what the framing of those that share adds makes 162 of them too long for one message.
  const std::vector<TxPacket> packets(165, pair.packet(1, 400));
  pair.send(packets);
  EXPECT_EQ(take(*pair.b, packets.size()).size(), packets.size());
  EXPECT_EQ(pair.a->counters().gso_fallbacks, 0u);
  EXPECT_EQ(pair.a->offloads().gso, gso);
  EXPECT_EQ(pair.a->counters().bytes_sent, pair.b->counters().bytes_received);
}

}  // namespace
}  // namespace clustar::transport::io::udp
