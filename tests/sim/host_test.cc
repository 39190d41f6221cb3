#include "transport/sim/host.h"

#include <gtest/gtest.h>

#include "tests/sim/endpoints.h"
#include "transport/sim/topology.h"

namespace clustar::transport::sim {
namespace {

// 1 Gbit/s, no delay, no overhead: a payload of 125 B takes 1 us.
struct Two {
  explicit Two(HostOptions host = {})
      : simulation({.seed = 1, .overhead_bytes = 0}),
        network(Network::pair(simulation, {.link = {1'000'000'000, Duration(0)}, .host = host})) {
    network->host(0).attach(&first);
    network->host(1).attach(&second);
  }
  void send_at(std::int64_t at, HostId from, std::uint64_t tag) {
    simulation.at(ns(at), [this, from, tag] { EXPECT_TRUE(network->host(from).send(packet_to(1 - from, 125, tag))); });
  }
  Simulation simulation;
  std::unique_ptr<Network> network;
  Recorder first;
  Recorder second;
};

TEST(Host, AFrozenHostNeitherReceivesNorWakesAndThenDoesBothInOrder) {
  Two two;
  two.network->host(1).freeze(ns(5000), ns(20000));
  for (std::uint64_t i = 0; i < 10; ++i) two.send_at(static_cast<std::int64_t>(i) * 2000, 0, i);
  two.network->host(1).set_wake(ns(7000));
  two.simulation.run_until(ns(19999));
  EXPECT_TRUE(two.network->host(1).frozen());
  EXPECT_EQ(two.second.tags(), (std::vector<std::uint64_t>{0, 1}));
  EXPECT_TRUE(two.second.wakes.empty());
  two.simulation.run(~0ull);
  EXPECT_EQ(two.second.tags(), (std::vector<std::uint64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  for (std::size_t i = 2; i < 10; ++i) EXPECT_EQ(two.second.arrivals[i].at, ns(20000));
  EXPECT_EQ(two.second.wakes, std::vector<TimePoint>{ns(20000)});
}

TEST(Host, AFrozenHostSendsNothingThatHadNotStarted) {
  Two two;
  two.network->host(0).freeze(ns(1500), ns(9000));
  for (std::uint64_t i = 0; i < 4; ++i) two.send_at(0, 0, i);
  two.simulation.run(~0ull);
  std::vector<TimePoint> times;
  for (const auto& arrival : two.second.arrivals) times.push_back(arrival.at);
  EXPECT_EQ(times, (std::vector<TimePoint>{ns(1000), ns(2000), ns(10000), ns(11000)}));
}

TEST(Host, TheBacklogOfAFrozenHostIsBounded) {
  Two two({.tx_queue_packets = 256, .frozen_backlog_packets = 3});
  two.network->host(1).freeze(ns(0), ns(1'000'000));
  for (std::uint64_t i = 0; i < 10; ++i) two.send_at(0, 0, i);
  two.simulation.run(~0ull);
  EXPECT_EQ(two.second.tags(), (std::vector<std::uint64_t>{0, 1, 2}));
  EXPECT_EQ(two.network->host(1).counters().drops[DropCause::kFrozen], 7u);
  EXPECT_EQ(two.simulation.packets().in_use(), 0u);
}

TEST(Host, WindowsOfFreezingMayOverlap) {
  Two two;
  two.network->host(1).freeze(ns(1000), ns(5000));
  two.network->host(1).freeze(ns(3000), ns(8000));
  two.network->host(1).freeze(ns(9000), ns(9000));  // empty
  two.network->host(1).set_wake(ns(2000));
  two.send_at(0, 1, 7);
  two.send_at(6000, 1, 8);
  two.simulation.run(~0ull);
  EXPECT_EQ(two.second.wakes, std::vector<TimePoint>{ns(8000)});
  EXPECT_EQ(two.first.arrivals.at(1).at, ns(9000));
  EXPECT_FALSE(two.network->host(1).frozen());
}

TEST(Host, OnWakeAnswersTheNextTimeAndCannotStopTheClock) {
  struct Metronome final : Endpoint {
    void on_packet(SimPacket&, TimePoint) override {}
    TimePoint on_wake(TimePoint now) override {
      beats.push_back(now);
      if (beats.size() == 3) return now - Duration(50);
      return beats.size() < 5 ? now + Duration(100) : kNever;
    }
    std::vector<TimePoint> beats;
  } metronome;
  Two two;
  two.network->host(0).attach(&metronome);
  two.network->host(0).set_wake(ns(100));
  two.simulation.run(~0ull);
  EXPECT_EQ(metronome.beats, (std::vector<TimePoint>{ns(100), ns(200), ns(300), ns(301), ns(401)}));
  two.network->host(0).attach(nullptr);
}

}  // namespace
}  // namespace clustar::transport::sim
