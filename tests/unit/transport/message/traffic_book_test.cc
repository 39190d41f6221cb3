#include "transport/message/traffic_book.h"

#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <thread>
#include <vector>

namespace clustar::transport {
namespace {

DeviceCounters read(const TrafficBook& book) {
  DeviceCounters counters;
  book.fill(counters);
  return counters;
}

TEST(TrafficBook, CountsByClassAndByPeer) {
  TrafficBook book;
  auto first = book.open(160, "10.0.0.1", 3), second = book.open(160, "10.0.0.2", 4),
       third = book.open(-1, "10.0.0.1", 3);
  first->sent(100), first->sent(50), second->received(7), third->sent(1);
  second->missing(5), first->waited();
  const DeviceCounters counters = read(book);
  EXPECT_EQ(counters.total.sent, (Traffic{3, 151}));
  EXPECT_EQ(counters.total.received, (Traffic{1, 7}));
  EXPECT_EQ(counters.total.missing_bytes, 5u);
  EXPECT_EQ(counters.total.waits, 1u);
  ASSERT_EQ(counters.classes.size(), 2u);
  EXPECT_EQ(counters.classes[0].traffic_class, -1);
  EXPECT_EQ(counters.classes[1].traffic.sent, (Traffic{2, 150}));
  ASSERT_EQ(counters.peers.size(), 2u);
  EXPECT_EQ(counters.peers[0].host, "10.0.0.1");
  EXPECT_EQ(counters.peers[0].rank, 3);
  EXPECT_EQ(counters.peers[0].channels, 2u);
  EXPECT_EQ(counters.peers[0].traffic.sent, (Traffic{3, 151}));
  EXPECT_EQ(counters.peers[1].traffic.received, (Traffic{1, 7}));
}

TEST(TrafficBook, WhatAClosedChannelDidStays) {
  TrafficBook book;
  {
    auto entry = book.open(1, "a", 0);
    entry->sent(10);
    entry->kernel(3, 4);
    auto moved = std::move(entry);
    moved->sent(10);
  }
  const DeviceCounters counters = read(book);
  EXPECT_EQ(counters.total.sent, (Traffic{2, 20}));
  EXPECT_EQ(counters.retransmitted, 3u);
  EXPECT_EQ(counters.marked, 4u);
  ASSERT_EQ(counters.peers.size(), 1u);
  EXPECT_EQ(counters.peers[0].channels, 0u);
}

TEST(TrafficBook, PeersAreBoundedAndNothingIsLost) {
  TrafficBook book;
  for (int rank = 0; rank < 3000; ++rank) book.open(rank, "host", rank)->sent(1);
  const DeviceCounters counters = read(book);
  EXPECT_LE(counters.peers.size(), TrafficBook::kMostPeers + 1);
  EXPECT_LE(counters.classes.size(), TrafficBook::kMostPeers + 1);
  std::uint64_t sum = 0;
  for (const PeerTraffic& peer : counters.peers) sum += peer.traffic.sent.messages;
  EXPECT_EQ(sum, 3000u);
  EXPECT_EQ(counters.total.sent.messages, 3000u);
}

TEST(TrafficBook, IsReadWhileOthersCount) {
  TrafficBook book;
  std::atomic<bool> stop{false};
  std::vector<std::thread> counting;
  for (int i = 0; i < 3; ++i) {
    counting.emplace_back([&, i] {
      for (int round = 0; round < 200; ++round) {
        auto entry = book.open(i, "host", i);
        for (int message = 0; message < 50; ++message) entry->sent(2);
      }
    });
  }
  std::thread reading([&] {
    std::uint64_t last = 0;
    while (!stop) {
      const DeviceCounters counters = read(book);
      EXPECT_GE(counters.total.sent.messages, last);
      last = counters.total.sent.messages;
    }
  });
  for (std::thread& thread : counting) thread.join();
  stop = true;
  reading.join();
  EXPECT_EQ(read(book).total.sent, (Traffic{30'000, 60'000}));
}

TEST(Counters, AreSummedUpForPeople) {
  Counters counters{
      "tcp", {{.device = "eth0", .total = {{2, 8}, {1, 4}, 0, 0}, .own = {{"strangers", "strangers dropped", 1}}}}};
  EXPECT_EQ(counters.summary(), "tcp: eth0 sent 2 messages / 8 bytes, received 1 / 4, 1 strangers dropped;");
  counters.devices[0].packets_sent = 10;
  counters.devices[0].retransmitted = 3;
  EXPECT_EQ(counters.summary(),
            "tcp: eth0 sent 2 messages / 8 bytes, received 1 / 4, 10 packets sent, 3 of them again, 0 received, 0 with "
            "CE, 1 strangers dropped;");
  EXPECT_EQ(counters.devices[0].number("strangers"), 1u);
  EXPECT_EQ(counters.devices[0].number("none"), 0u);
}

}  // namespace
}  // namespace clustar::transport
