#include "transport/sim/switch.h"

#include <gtest/gtest.h>

#include "tests/sim/endpoints.h"
#include "transport/sim/topology.h"

namespace clustar::transport::sim {
namespace {

// Hosts 1, 2, .. send to host 0 at 1 Gbit/s each, without overhead.
struct Incast {
  explicit Incast(const SwitchOptions& options, std::uint32_t hosts = 3)
      : simulation({.seed = 1, .overhead_bytes = 0}),
        network(Network::star(
            simulation,
            {.hosts = hosts, .link = {1'000'000'000, Duration(0)}, .host = {1000, 1}, .switches = options})) {
    network->host(0).attach(&receiver);
  }
  void send(HostId from, const SimPacket& packet) { ASSERT_TRUE(network->host(from).send(packet)); }
  const PortCounters& out() { return network->down(0).counters(); }
  Simulation simulation;
  std::unique_ptr<Network> network;
  Recorder receiver;
};

TEST(Switch, ABufferHoldsItsBytesAndNotOneMore) {
  SwitchOptions options;
  options.buffer_bytes = 5000;
  Incast incast(options, 12);
  // Eleven packets arrive in the same instant: one goes on, five wait, five are lost.
  for (HostId from = 1; from < 12; ++from) incast.send(from, packet_to(0, 1000, from));
  incast.simulation.run(~0ull);
  EXPECT_EQ(incast.receiver.tags(), (std::vector<std::uint64_t>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(incast.out().drops[DropCause::kBuffer], 5u);
  EXPECT_EQ(incast.out().drops.total(), 5u);
  EXPECT_EQ(incast.out().max_queue_bytes, 5000u);
  EXPECT_EQ(incast.simulation.packets().in_use(), 0u);
}

TEST(Switch, ASharedBufferIsOneForAllPorts) {
  for (const bool shared : {false, true}) {
    SwitchOptions options;
    options.buffer_bytes = 4000;
    options.shared_buffer = shared;
    Incast incast(options, 8);
    Recorder other;
    incast.network->host(1).attach(&other);
    // In one instant three come for host 0 and three for host 1: of each one goes on, and all four others may wait.
    // Three more for host 0 come before anything has left.
    for (HostId from = 2; from < 5; ++from) incast.send(from, packet_to(0, 1000, from));
    for (HostId from = 5; from < 8; ++from) incast.send(from, packet_to(1, 1000, from));
    for (HostId from = 2; from < 5; ++from) incast.send(from, packet_to(0, 500, 10 + from));
    incast.simulation.run(~0ull);
    EXPECT_EQ(incast.out().drops[DropCause::kBuffer], shared ? 3u : 0u);
    EXPECT_EQ(incast.receiver.arrivals.size(), shared ? 3u : 6u);
    EXPECT_EQ(other.arrivals.size(), 3u);
  }
}

TEST(Switch, MarksEctPacketsThatSeeMoreThanTheThreshold) {
  SwitchOptions options;
  options.mark_above[2] = 2000;
  Incast incast(options, 10);
  for (HostId from = 1; from < 10; ++from) {
    SimPacket packet = packet_to(0, 1000, from, 2);
    packet.ecn = from == 8 ? io::Ecn::kNotEct : io::Ecn::kEct0;
    incast.send(from, packet);
  }
  incast.simulation.run(~0ull);
  // The first goes on; the next three see 0, 1000 and 2000 B.
  for (const auto& arrival : incast.receiver.arrivals) {
    const std::uint64_t tag = arrival.packet.payload_tag;
    const io::Ecn expected = tag == 8 ? io::Ecn::kNotEct : tag > 4 ? io::Ecn::kCe : io::Ecn::kEct0;
    EXPECT_EQ(arrival.packet.ecn, expected) << tag;
  }
  EXPECT_EQ(incast.receiver.arrivals.size(), 9u);
  EXPECT_EQ(incast.out().marks, 4u);
}

TEST(Switch, ThresholdsOfOneClassLeaveTheOthersAlone) {
  SwitchOptions options;
  options.mark_above[2] = 0;
  options.drop_above[1] = 2000;
  Incast incast(options, 11);
  for (HostId from = 1; from < 11; ++from) {
    SimPacket packet = packet_to(0, 1000, from, from % 2 == 0 ? 1 : 3);
    packet.ecn = io::Ecn::kEct1;
    incast.send(from, packet);
  }
  incast.simulation.run(~0ull);
  EXPECT_EQ(incast.out().marks, 0u);
  EXPECT_EQ(incast.out().drops.total(), incast.out().drops[DropCause::kSelective]);
  // 1 leaves; 2 and 3 wait; from then on 2,000 B are there and class 1 has no room while class 3 has.
  EXPECT_EQ(incast.receiver.tags(), (std::vector<std::uint64_t>{1, 3, 5, 7, 9, 2}));
  EXPECT_EQ(incast.out().drops.total(), 4u);
}

TEST(Switch, TrimmingKeepsTheHeaderAndSendsItFirst) {
  SwitchOptions options;
  options.buffer_bytes = 3000;
  options.trim = every_class(true);
  options.trim_reserve_bytes = 80;  // two headers
  Incast incast(options, 10);
  for (HostId from = 1; from < 10; ++from) {
    SimPacket packet = packet_to(0, 960, from, 2);
    packet.header = io::Header(40);
    packet.header.bytes()[0] = static_cast<std::byte>(from);
    incast.send(from, packet);
  }
  incast.simulation.run(~0ull);
  EXPECT_EQ(incast.receiver.tags(), (std::vector<std::uint64_t>{1, 5, 6, 2, 3, 4}));
  for (const auto& arrival : incast.receiver.arrivals) {
    const std::uint64_t tag = arrival.packet.payload_tag;
    const bool cut = tag == 5 || tag == 6;
    EXPECT_EQ(arrival.packet.trimmed, cut);
    EXPECT_EQ(arrival.packet.payload_bytes, cut ? 0u : 960u);
    EXPECT_EQ(arrival.packet.traffic_class, cut ? 7 : 2);
    EXPECT_EQ(arrival.packet.header.bytes()[0], static_cast<std::byte>(tag));
    EXPECT_EQ(arrival.packet.header.bytes().size(), 40u);
  }
  // The cut ones need 320 ns each behind the first packet.
  EXPECT_EQ(incast.receiver.arrivals[1].at, ns(8000 + 8000 + 320));
  EXPECT_EQ(incast.out().trims, 2u);
  EXPECT_EQ(incast.out().drops[DropCause::kBuffer], 3u);
}

TEST(Switch, AHeaderThatWasCutBeforeMayUseTheReserve) {
  SwitchOptions options;
  options.buffer_bytes = 2000;
  options.trim_reserve_bytes = 100;
  Incast incast(options, 8);
  for (HostId from = 1; from < 4; ++from) incast.send(from, packet_to(0, 1000, from));  // one goes on, two fill it
  for (HostId from = 4; from < 8; ++from) {
    SimPacket packet = packet_to(0, 0, from, 7);
    packet.header = io::Header(40);
    packet.trimmed = from != 4;
    incast.simulation.at(ns(8000), [&incast, from, packet] { incast.send(from, packet); });
  }
  incast.simulation.run(~0ull);
  EXPECT_EQ(incast.receiver.tags(), (std::vector<std::uint64_t>{1, 5, 6, 2, 3}));
  EXPECT_EQ(incast.out().drops[DropCause::kBuffer], 2u);
}

TEST(Switch, WhatHasLeftCountsNoMore) {
  for (const bool shared : {false, true}) {
    SwitchOptions options;
    options.buffer_bytes = 8000;
    options.shared_buffer = shared;
    options.mark_above = every_class<std::uint64_t>(3000);
    Incast incast(options, 5);
    // Four at a time, each burst gone before the next.
    for (int burst = 0; burst < 20; ++burst) {
      incast.simulation.at(ns(burst * 100'000), [&] {
        for (HostId from = 1; from < 5; ++from) {
          SimPacket packet = packet_to(0, 1000, from);
          packet.ecn = io::Ecn::kEct0;
          incast.send(from, packet);
        }
      });
    }
    incast.simulation.run(~0ull);
    EXPECT_EQ(incast.receiver.arrivals.size(), 80u);
    EXPECT_EQ(incast.out().marks, 0u);
    EXPECT_EQ(incast.out().max_queue_bytes, 3000u);
    EXPECT_EQ(incast.network->down(0).queued_bytes(), 0u);
  }
}

TEST(Switch, DropsWhatHasNoDestination) {
  Incast incast(SwitchOptions{});
  incast.send(1, packet_to(77, 100));
  incast.send(1, packet_to(2, 100));  // a host where nothing is attached
  incast.simulation.run(~0ull);
  EXPECT_EQ(incast.network->drops()[DropCause::kNoEndpoint], 2u);
  EXPECT_EQ(incast.simulation.packets().in_use(), 0u);
}

}  // namespace
}  // namespace clustar::transport::sim
