// Rates and delays to the nanosecond, and strict priority.
#include "transport/sim/port.h"

#include <gtest/gtest.h>

#include "tests/sim/endpoints.h"
#include "transport/sim/topology.h"

namespace clustar::transport::sim {
namespace {

struct Wire {
  explicit Wire(std::uint64_t rate_bps, Duration delay, std::uint32_t overhead = 0, HostOptions host = {100000, 1024})
      : simulation({.seed = 1, .overhead_bytes = overhead}),
        network(Network::pair(simulation, {.link = {rate_bps, delay}, .host = host})) {
    network->host(0).attach(&sender);
    network->host(1).attach(&receiver);
  }
  Simulation simulation;
  std::unique_ptr<Network> network;
  Recorder sender;
  Recorder receiver;
};

TEST(Port, APacketTakesItsBitsOverTheRatePlusTheDelay) {
  Wire wire(1'000'000'000, Duration(700), 66);
  SimPacket packet = packet_to(1, 1000);
  packet.header = io::Header(34);
  ASSERT_TRUE(wire.network->host(0).send(packet));
  wire.simulation.run(100);
  ASSERT_EQ(wire.receiver.arrivals.size(), 1u);
  EXPECT_EQ(wire.receiver.arrivals[0].at, ns(1100 * 8 + 700));  // 1 ns a bit
  EXPECT_EQ(wire.receiver.arrivals[0].packet.sent, ns(0));
  EXPECT_EQ(wire.receiver.arrivals[0].packet.source, 0u);
  EXPECT_EQ(wire.network->up(0).counters().bytes, 1100u);
}

// 1500 B at 70 Gbit/s last 171.43 ns; ten thousand of them must last 1,714,285 ns, not 10,000 x 171.
TEST(Port, BackToBackPacketsLoseNoFractionOfANanosecond) {
  Wire wire(70'000'000'000, Duration(0));
  for (int i = 0; i < 10000; ++i) ASSERT_TRUE(wire.network->host(0).send(packet_to(1, 1500)));
  wire.simulation.run(~0ull);
  ASSERT_EQ(wire.receiver.arrivals.size(), 10000u);
  EXPECT_EQ(wire.receiver.arrivals.back().at, ns(10000ll * 1500 * 8 / 70));
}

TEST(Port, ATransmitterThatWasIdleStartsAtOnce) {
  Wire wire(3'000'000'000, Duration(0));
  for (const std::int64_t at : {0, 1000, 5000}) {
    wire.simulation.at(ns(at), [&] { wire.network->host(0).send(packet_to(1, 1)); });  // 2.67 ns
  }
  wire.simulation.run(100);
  std::vector<TimePoint> times;
  for (const auto& arrival : wire.receiver.arrivals) times.push_back(arrival.at);
  EXPECT_EQ(times, (std::vector<TimePoint>{ns(2), ns(1002), ns(5002)}));
}

TEST(Port, StoreAndForwardTimeOfATrainThroughASwitch) {
  Simulation simulation({.seed = 1, .overhead_bytes = 0});
  auto network = Network::star(
      simulation, {.hosts = 3, .link = {10'000'000'000, Duration(500)}, .host = {1000, 1}, .switches = {}});
  Recorder receiver;
  network->host(2).attach(&receiver);
  constexpr int kPackets = 100;
  for (int i = 0; i < kPackets; ++i) ASSERT_TRUE(network->host(0).send(packet_to(2, 1250)));  // 1 us each
  simulation.run(~0ull);
  ASSERT_EQ(receiver.arrivals.size(), 100u);
  for (int i = 0; i < kPackets; ++i) {
    EXPECT_EQ(receiver.arrivals[static_cast<std::size_t>(i)].at, ns((i + 2) * 1000 + 2 * 500)) << i;
  }
  // In step with its own input, the output never makes a packet wait.
  EXPECT_EQ(network->down(2).counters().max_queue_bytes, 0u);
  EXPECT_EQ(simulation.packets().in_use(), 0u);
}

TEST(Port, HigherClassesGoFirstAndEachClassInOrder) {
  Wire wire(1'000'000'000, Duration(0));
  // The first goes at once; those behind it are sorted.
  const std::vector<std::uint8_t> classes = {0, 3, 0, 7, 5, 3, 7, 1};
  for (std::size_t i = 0; i < classes.size(); ++i) {
    ASSERT_TRUE(wire.network->host(0).send(packet_to(1, 100, i, classes[i])));
  }
  // One that comes later passes all lower classes, but not the one on the wire nor those of its own class.
  wire.simulation.at(ns(1000), [&] { wire.network->host(0).send(packet_to(1, 100, 99, 7)); });
  wire.simulation.run(100);
  EXPECT_EQ(wire.receiver.tags(), (std::vector<std::uint64_t>{0, 3, 6, 99, 4, 1, 5, 7, 2}));
}

TEST(Port, AFullNicRefusesAndSaysWhenThereIsRoom) {
  Wire wire(1'000'000'000, Duration(0), 0, {4, 1024});
  Host& host = wire.network->host(0);
  for (std::uint64_t i = 0; i < 5; ++i) ASSERT_TRUE(host.send(packet_to(1, 125, i)));  // one on the wire, four wait
  EXPECT_EQ(host.room(), 0u);
  EXPECT_FALSE(host.send(packet_to(1, 125, 5)));
  EXPECT_FALSE(host.send(packet_to(1, 125, 6)));
  wire.simulation.run(100);
  EXPECT_EQ(wire.sender.rooms, std::vector<TimePoint>{ns(1000)});
  EXPECT_EQ(wire.receiver.tags(), (std::vector<std::uint64_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(host.counters().refused_packets, 2u);
  EXPECT_EQ(wire.network->up(0).counters().max_queue_bytes, 500u);
}

}  // namespace
}  // namespace clustar::transport::sim
