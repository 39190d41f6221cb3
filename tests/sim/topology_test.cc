#include "transport/sim/topology.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/sim/endpoints.h"

namespace clustar::transport::sim {
namespace {

LeafSpineOptions small_fabric() {
  LeafSpineOptions options;
  options.leaves = 4;
  options.hosts_per_leaf = 3;
  options.spines = 4;
  options.host_link = {10'000'000'000, Duration(100)};
  options.fabric_link = {40'000'000'000, Duration(300)};
  return options;
}

TEST(LeafSpine, EveryHostReachesEveryOther) {
  Simulation simulation;
  auto network = Network::leaf_spine(simulation, small_fabric());
  std::vector<Recorder> recorders(network->hosts());
  for (HostId id = 0; id < network->hosts(); ++id) network->host(id).attach(&recorders[id]);
  for (HostId from = 0; from < network->hosts(); ++from) {
    for (HostId to = 0; to < network->hosts(); ++to) {
      ASSERT_TRUE(network->host(from).send(packet_to(to, 100, from)));
    }
  }
  simulation.run(~0ull);
  for (const Recorder& recorder : recorders) {
    EXPECT_EQ(recorder.arrivals.size(), network->hosts());
    std::set<std::uint64_t> sources;
    for (const auto& arrival : recorder.arrivals) sources.insert(arrival.packet.source);
    EXPECT_EQ(sources.size(), network->hosts());
  }
  EXPECT_EQ(network->drops().total(), 0u);
  // Within a leaf two links (with itself too), across leaves four.
  EXPECT_EQ(network->packets_sent(), 12u * 3 * 2 + 12u * 9 * 4);
}

TEST(LeafSpine, TimesAcrossTheFabricAreExact) {
  Simulation simulation({.seed = 1, .overhead_bytes = 0});
  auto network = Network::leaf_spine(simulation, small_fabric());
  Recorder receiver;
  network->host(11).attach(&receiver);
  ASSERT_TRUE(network->host(0).send(packet_to(11, 1000)));
  simulation.run(~0ull);
  ASSERT_EQ(receiver.arrivals.size(), 1u);
  EXPECT_EQ(receiver.arrivals[0].at, ns(2 * (800 + 100) + 2 * (200 + 300)));
}

TEST(LeafSpine, ThePathChoosesTheSpine) {
  Simulation simulation;
  auto network = Network::leaf_spine(simulation, small_fabric());
  Recorder receiver;
  network->host(4).attach(&receiver);
  std::array<std::uint64_t, 4> expected{};
  for (int path = 0; path < 64; ++path) {
    SimPacket packet = packet_to(4, 100);
    packet.path = static_cast<std::uint8_t>(path);
    ASSERT_TRUE(network->host(0).send(packet));
    ++expected[network->spine_of(0, 4, packet.path)];
  }
  simulation.run(~0ull);
  EXPECT_EQ(receiver.arrivals.size(), 64u);
  for (std::uint32_t spine = 0; spine < 4; ++spine) {
    EXPECT_EQ(network->leaf_to_spine(0, spine).counters().packets, expected[spine]);
    EXPECT_EQ(network->spine_to_leaf(spine, 1).counters().packets, expected[spine]);
    EXPECT_GE(expected[spine], 6u);  // 16 expected, deviation 3.5
    EXPECT_LE(expected[spine], 26u);
  }
}

TEST(LeafSpine, AFailedSpineLinkTakesOnlyThePathsOverIt) {
  Simulation simulation;
  auto network = Network::leaf_spine(simulation, small_fabric());
  Recorder receiver;
  network->host(4).attach(&receiver);
  const std::uint32_t failed = network->spine_of(0, 4, 0);
  network->leaf_to_spine(0, failed).faults().add(LinkDown{{ns(0), ns(1'000'000)}});
  const auto send_all = [&] {
    for (int path = 0; path < 16; ++path) {
      SimPacket packet = packet_to(4, 100);
      packet.path = static_cast<std::uint8_t>(path);
      ASSERT_TRUE(network->host(0).send(packet));
    }
  };
  send_all();
  simulation.run_until(ns(1'000'000));
  for (const auto& arrival : receiver.arrivals) EXPECT_NE(network->spine_of(0, 4, arrival.packet.path), failed);
  EXPECT_EQ(receiver.arrivals.size() + network->drops()[DropCause::kLinkDown], 16u);
  EXPECT_LT(receiver.arrivals.size(), 16u);
  receiver.arrivals.clear();
  send_all();
  simulation.run(~0ull);
  EXPECT_EQ(receiver.arrivals.size(), 16u);
}

}  // namespace
}  // namespace clustar::transport::sim
