// The same seed gives the same run, to the last byte and nanosecond; and a large one, with its cost printed.
#include <gtest/gtest.h>

#include <ctime>
#include <iostream>

#include "tests/sim/endpoints.h"
#include "transport/sim/topology.h"

namespace clustar::transport::sim {
namespace {

// Sends `budget` packets to random others, a few at each wake-up, and answers some of those it gets.
struct Chatter final : Endpoint {
  Chatter(Network& the_network, HostId id, std::uint64_t seed, std::uint64_t packets)
      : network(the_network), host(the_network.host(id)), rng(seed * 1'000'003 + id), budget(packets) {
    host.attach(this);
    host.set_wake(ns(static_cast<std::int64_t>(rng.below(1000))));
    outgoing.header = io::Header(40);
    outgoing.payload_bytes = 1400;
  }
  void on_packet(SimPacket& packet, TimePoint) override {
    ++received;
    if (answers && rng.chance(0.1)) send_one(packet.source);
  }
  TimePoint on_wake(TimePoint now) override {
    for (int i = 0; i < 4 && budget > 0; ++i) {
      if (!send_one((host.id() + 1 + static_cast<HostId>(rng.below(network.hosts() - 1))) % network.hosts())) break;
      --budget;
    }
    return budget > 0 ? now + Duration(700) : kNever;
  }
  bool send_one(HostId to) {
    outgoing.destination = to;
    outgoing.path = static_cast<std::uint8_t>(rng.below(16));
    outgoing.traffic_class = static_cast<std::uint8_t>(rng.below(8));
    outgoing.ecn = io::Ecn::kEct0;
    outgoing.payload_tag = rng.next();
    return host.send(outgoing);
  }
  Network& network;
  Host& host;
  Rng rng;
  std::uint64_t budget;
  std::uint64_t received = 0;
  bool answers = false;
  SimPacket outgoing;
};

struct Outcome {
  std::uint64_t digest = 0;
  std::uint64_t received = 0;
  std::uint64_t events = 0;
};

Outcome fabric_run(std::uint64_t seed, bool stepwise) {
  Simulation simulation({.seed = seed});
  LeafSpineOptions options;
  options.leaves = 4;
  options.hosts_per_leaf = 8;
  options.spines = 3;
  options.switches.buffer_bytes = 60'000;
  options.switches.mark_above = every_class<std::uint64_t>(10'000);
  options.switches.trim[2] = true;
  auto network = Network::leaf_spine(simulation, options);
  network->leaf_to_spine(0, 0).faults().add(RandomLoss{0.02});
  network->leaf_to_spine(0, 0).faults().add(Duplicate{0.01, Duration(100)});
  network->spine_to_leaf(1, 2).faults().add(Reorder{0.05, Duration(3000)});
  network->up(5).faults().add(Corrupt{0.02});
  network->host(9).freeze(ns(20'000), ns(60'000));
  std::vector<std::unique_ptr<Chatter>> chatters;
  for (HostId id = 0; id < network->hosts(); ++id) {
    chatters.push_back(std::make_unique<Chatter>(*network, id, seed, 500));
    chatters.back()->answers = true;
  }
  if (stepwise) {
    while (!simulation.events().empty()) simulation.run_for(Duration(777));
  } else {
    simulation.run(~0ull);
  }
  EXPECT_EQ(simulation.packets().in_use(), 0u);
  Outcome outcome{simulation.digest().value(), 0, simulation.events().processed()};
  std::uint64_t duplicates = network->leaf_to_spine(0, 0).counters().duplicates;
  std::uint64_t sent = 0;
  for (HostId id = 0; id < network->hosts(); ++id) {
    outcome.received += chatters[id]->received;
    sent += network->host(id).counters().sent_packets;
  }
  // Every packet is somewhere.
  EXPECT_EQ(sent + duplicates, outcome.received + network->drops().total());
  return outcome;
}

TEST(Replay, TheDigestDependsOnTheSeedAndNothingElse) {
  const Outcome once = fabric_run(1, false);
  EXPECT_GT(once.received, 10'000u);
  EXPECT_EQ(fabric_run(1, false).digest, once.digest);
  EXPECT_EQ(fabric_run(1, true).digest, once.digest);
  EXPECT_NE(fabric_run(2, false).digest, once.digest);
}

TEST(Replay, TheDigestSeesContentOrderAndTime) {
  const auto digest_of = [](const std::vector<std::pair<std::int64_t, std::uint64_t>>& packets,
                            std::byte in_header = {}, std::byte in_payload = {}) {
    Simulation simulation;
    auto network = Network::pair(simulation, {});
    Recorder receiver;
    network->host(1).attach(&receiver);
    for (const auto& [at, tag] : packets) {
      SimPacket packet = packet_to(1, 16, tag);
      packet.header = io::Header(9);
      packet.header.bytes()[8] = in_header;
      packet.payload.assign(16, in_payload);
      simulation.at(ns(at), [&network, packet] { network->host(0).send(packet); });
    }
    simulation.run(~0ull);
    return simulation.digest().value();
  };
  const std::uint64_t base = digest_of({{0, 1}, {1000, 2}});
  EXPECT_EQ(digest_of({{0, 1}, {1000, 2}}), base);
  EXPECT_NE(digest_of({{0, 2}, {1000, 1}}), base);
  EXPECT_NE(digest_of({{0, 1}, {1001, 2}}), base);
  EXPECT_NE(digest_of({{0, 1}, {1000, 2}}, std::byte{1}), base);
  EXPECT_NE(digest_of({{0, 1}, {1000, 2}}, {}, std::byte{1}), base);
  EXPECT_NE(digest_of({{0, 1}}), base);
}

TEST(Scale, AThousandHostsAndAMillionPackets) {
  for (const std::uint32_t hosts : {64u, 1024u}) {
    Simulation simulation;
    StarOptions options;
    options.hosts = hosts;
    auto network = Network::star(simulation, options);
    std::vector<std::unique_ptr<Chatter>> chatters;
    for (HostId id = 0; id < hosts; ++id) {
      chatters.push_back(std::make_unique<Chatter>(*network, id, 1, (1u << 20) / hosts));
    }
    const std::clock_t start = std::clock();  // CPU time: other tests may run beside this one
    EXPECT_TRUE(simulation.run(~0ull));
    const double nanoseconds = static_cast<double>(std::clock() - start) * (1e9 / CLOCKS_PER_SEC);
    std::uint64_t received = 0;
    for (const auto& chatter : chatters) received += chatter->received;
    EXPECT_EQ(received, 1u << 20);
    EXPECT_EQ(network->packets_sent(), 2u << 20);
    EXPECT_EQ(simulation.packets().in_use(), 0u);
    const auto hops = static_cast<double>(network->packets_sent());
    std::cout << hosts << " hosts: " << nanoseconds / hops << " ns of CPU a packet-hop, " << hops / nanoseconds * 1e3
              << " M hops/s, " << static_cast<double>(simulation.events().processed()) / hops << " events a hop, "
              << simulation.packets().capacity() << " packets in the pool\n";
  }
}

}  // namespace
}  // namespace clustar::transport::sim
