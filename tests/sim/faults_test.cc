// Each fault: its rate within five standard deviations, or exact where it is scripted.
#include "transport/sim/faults.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "tests/sim/endpoints.h"
#include "transport/sim/topology.h"

namespace clustar::transport::sim {
namespace {

// One link; a packet of `payload` bytes every microsecond, numbered from 1 by its tag.
struct Line {
  explicit Line(std::uint64_t seed = 1)
      : simulation({.seed = seed, .overhead_bytes = 0}),
        network(Network::pair(simulation, {.link = {100'000'000'000, Duration(1000)}, .host = {}})) {
    network->host(0).attach(&sender);
    network->host(1).attach(&receiver);
  }
  void send(std::uint64_t count, std::uint32_t payload = 100, const std::function<void(SimPacket&)>& change = {}) {
    for (std::uint64_t i = 0; i < count; ++i) {
      simulation.run_until(ns(static_cast<std::int64_t>(sent) * 1000));
      SimPacket packet = packet_to(1, payload, ++sent);
      packet.header = io::Header(20);
      if (change) change(packet);
      ASSERT_TRUE(network->host(0).send(packet));
    }
    simulation.run_for(std::chrono::seconds(1));
  }
  FaultChain& faults() { return network->up(0).faults(); }
  const PortCounters& counters() { return network->up(0).counters(); }
  std::vector<std::uint64_t> lost() const {
    std::vector<bool> arrived(sent + 1);
    for (const std::uint64_t tag : receiver.tags()) arrived[tag] = true;
    std::vector<std::uint64_t> missing;
    for (std::uint64_t i = 1; i <= sent; ++i) {
      if (!arrived[i]) missing.push_back(i);
    }
    return missing;
  }
  Simulation simulation;
  std::unique_ptr<Network> network;
  Recorder sender;
  Recorder receiver;
  std::uint64_t sent = 0;
};

constexpr std::uint64_t kMany = 50000;

void expect_share(std::uint64_t count, std::uint64_t of, double probability) {
  const double mean = static_cast<double>(of) * probability;
  EXPECT_NEAR(static_cast<double>(count), mean, 5 * std::sqrt(mean * (1 - probability)));
}

TEST(Faults, RandomLoss) {
  for (const double probability : {0.001, 0.01, 0.3}) {
    Line line;
    line.faults().add(RandomLoss{probability});
    line.send(kMany);
    expect_share(line.lost().size(), kMany, probability);
    EXPECT_EQ(line.counters().drops[DropCause::kRandom], line.lost().size());
    EXPECT_EQ(line.simulation.packets().in_use(), 0u);
  }
}

TEST(Faults, GilbertElliottLosesInBursts) {
  Line line;
  line.faults().add(GilbertElliott{.good_to_bad = 0.01, .bad_to_good = 0.2, .loss_good = 0, .loss_bad = 0.9});
  line.send(kMany);
  const std::vector<std::uint64_t> lost = line.lost();
  const double bad_share = 0.01 / 0.21;
  EXPECT_NEAR(static_cast<double>(lost.size()) / kMany, bad_share * 0.9, 0.006);
  std::size_t follows = 0;
  for (std::size_t i = 1; i < lost.size(); ++i) follows += lost[i] == lost[i - 1] + 1;
  // After a loss the state is still bad with 0.8; independent losses would follow each other with 0.04.
  EXPECT_NEAR(static_cast<double>(follows) / static_cast<double>(lost.size()), 0.8 * 0.9, 0.06);
}

TEST(Faults, PeriodicAndScriptedLossAreExact) {
  Line line;
  line.faults().add(PeriodicLoss{10});
  line.faults().add(ScriptedLoss{{33, 2, 7, 7, 20, 0}});
  line.send(40);
  EXPECT_EQ(line.lost(), (std::vector<std::uint64_t>{2, 7, 10, 20, 30, 33, 40}));
  EXPECT_EQ(line.counters().drops[DropCause::kPeriodic], 4u);
  EXPECT_EQ(line.counters().drops[DropCause::kScripted], 3u);  // 20 counts for the fault that was added first
}

TEST(Faults, ScopesCountOnlyTheirPackets) {
  Line line;
  line.faults().add(ScriptedLoss{{1, 3}}, {.path = 2});
  line.faults().add(PeriodicLoss{1}, {.traffic_class = 5});
  line.faults().add(PeriodicLoss{1}, {.active = {ns(30'000), ns(32'000)}});
  line.send(40, 100, [](SimPacket& packet) {
    packet.path = packet.payload_tag % 4;
    packet.traffic_class = packet.payload_tag == 17 ? 5 : 0;
  });
  EXPECT_EQ(line.lost(), (std::vector<std::uint64_t>{2, 10, 17, 31, 32}));  // number n leaves at (n - 1) us
}

TEST(Faults, MicroBurstsOnceAndRepeated) {
  Line line;
  line.faults().add(MicroBursts{.probability = 1, .windows = {{ns(20'000), ns(22'000)}, {ns(5'000), ns(8'000)}}});
  line.send(40);
  EXPECT_EQ(line.lost(), (std::vector<std::uint64_t>{6, 7, 8, 21, 22}));

  Line repeated;
  repeated.faults().add(
      MicroBursts{.probability = 0.8, .windows = {{ns(10'000), ns(30'000)}}, .period = Duration(100'000)});
  repeated.send(kMany);
  const std::vector<std::uint64_t> lost = repeated.lost();
  expect_share(lost.size(), kMany / 5, 0.8);
  for (const std::uint64_t number : lost) {
    EXPECT_GE((number - 1) % 100, 10u);
    EXPECT_LT((number - 1) % 100, 30u);
  }
}

TEST(Faults, ReorderingDelaysSomeAndLosesNone) {
  Line line;
  line.faults().add(Reorder{.probability = 0.1, .delay = Duration(2500)});
  line.send(kMany);
  EXPECT_TRUE(line.lost().empty());
  const std::vector<std::uint64_t> tags = line.receiver.tags();
  std::uint64_t overtaken = 0;
  for (std::size_t i = 0; i < tags.size(); ++i) {
    const Duration took = line.receiver.arrivals[i].at - line.receiver.arrivals[i].packet.sent;
    overtaken += took > Duration(2000);
    EXPECT_TRUE(took == Duration(1009) || took == Duration(3509)) << took.count();
  }
  expect_share(overtaken, kMany, 0.1);
  EXPECT_EQ(line.counters().delays, overtaken);
  EXPECT_FALSE(std::is_sorted(tags.begin(), tags.end()));
}

TEST(Faults, JitterKeepsOrderUnlessToldOtherwise) {
  for (const bool keep : {true, false}) {
    Line line;
    line.faults().add(Jitter{.max = Duration(5000), .keep_order = keep});
    line.send(kMany);
    const std::vector<std::uint64_t> tags = line.receiver.tags();
    EXPECT_EQ(tags.size(), kMany);
    EXPECT_EQ(std::is_sorted(tags.begin(), tags.end()), keep);
    Duration largest{0};
    double sum = 0;
    for (const auto& arrival : line.receiver.arrivals) {
      const Duration extra = arrival.at - arrival.packet.sent - Duration(1009);
      EXPECT_GE(extra.count(), 0);
      largest = std::max(largest, extra);
      sum += static_cast<double>(extra.count());
    }
    EXPECT_LE(largest, Duration(5000));
    EXPECT_GE(largest, Duration(4900));
    if (!keep) {
      EXPECT_NEAR(sum / kMany, 2500, 50);
    }
  }
}

TEST(Faults, DuplicatesAreEqualAndCounted) {
  Line line;
  line.faults().add(Duplicate{.probability = 0.2, .delay = Duration(300)});
  line.send(kMany);
  EXPECT_EQ(line.receiver.arrivals.size(), kMany + line.counters().duplicates);
  expect_share(line.counters().duplicates, kMany, 0.2);
  std::uint64_t copies = 0;
  for (std::size_t i = 1; i < line.receiver.arrivals.size(); ++i) {
    const auto& first = line.receiver.arrivals[i - 1];
    const auto& second = line.receiver.arrivals[i];
    if (first.packet.payload_tag != second.packet.payload_tag) continue;
    ++copies;
    EXPECT_EQ(second.at - first.at, Duration(300));
  }
  EXPECT_EQ(copies, line.counters().duplicates);
  EXPECT_EQ(line.simulation.packets().in_use(), 0u);
}

TEST(Faults, CorruptionFlipsBitsWhereItWasAskedTo) {
  for (const auto where : {Corrupt::Where::kHeader, Corrupt::Where::kPayload, Corrupt::Where::kAny}) {
    for (const bool bytes : {false, true}) {
      Line line;
      line.faults().add(Corrupt{.probability = 0.1, .where = where, .bits = 1});
      line.send(5000, 100, [&](SimPacket& packet) {
        if (bytes) packet.payload.assign(100, std::byte{0xaa});
      });
      EXPECT_EQ(line.receiver.arrivals.size(), 5000u);
      std::uint64_t headers = 0;
      std::uint64_t payloads = 0;
      for (std::size_t i = 0; i < 5000; ++i) {
        const SimPacket& packet = line.receiver.arrivals[i].packet;
        const auto header = packet.header.bytes();
        const bool header_bad =
            std::any_of(header.begin(), header.end(), [](std::byte b) { return b != std::byte{0}; });
        const bool payload_bad =
            packet.payload_tag != i + 1 ||
            std::any_of(packet.payload.begin(), packet.payload.end(), [](std::byte b) { return b != std::byte{0xaa}; });
        EXPECT_EQ(packet.corrupted, header_bad || payload_bad);
        EXPECT_FALSE(header_bad && payload_bad);
        headers += header_bad;
        payloads += payload_bad;
      }
      expect_share(headers + payloads, 5000, 0.1);
      EXPECT_EQ(line.counters().corruptions, headers + payloads);
      const std::uint64_t all = headers + payloads;
      const double header_share = where == Corrupt::Where::kAny ? 20.0 / 120.0 : where == Corrupt::Where::kHeader;
      expect_share(headers, all, header_share);
    }
  }
}

TEST(Faults, AFailedLinkLosesWhatIsOnIt) {
  Line line;
  line.faults().add(LinkDown{{ns(10'000), ns(13'000)}});
  line.send(40);
  // Number n is on the wire from (n - 1) us for 1.0096 us; number 10 is still on it when it fails.
  EXPECT_EQ(line.lost(), (std::vector<std::uint64_t>{10, 11, 12, 13}));
  EXPECT_EQ(line.counters().drops[DropCause::kLinkDown], 4u);
}

TEST(Faults, AnInterceptDecidesByContent) {
  Line line;
  line.faults().add(Intercept{[](SimPacket& packet, TimePoint sent, Fate& fate) {
                      if (packet.payload_tag % 3 == 0) fate.drop = DropCause::kIntercepted;
                      if (packet.payload_tag == 2) fate.delay = Duration(5'000'000);
                      if (sent == ns(3000)) packet.payload_tag = 1000;
                    }},
                    {-1, -1, {ns(0), ns(8000)}});
  line.send(10);
  EXPECT_EQ(line.receiver.tags(), (std::vector<std::uint64_t>{1, 1000, 5, 7, 8, 9, 10, 2}));
  EXPECT_EQ(line.counters().drops[DropCause::kIntercepted], 2u);
}

TEST(Faults, OneMoreFaultLeavesTheOthersAsTheyWere) {
  const auto lost_at_random = [](bool more, std::uint64_t seed) {
    Line line(seed);
    if (more) line.faults().add(GilbertElliott{.good_to_bad = 0.1, .bad_to_good = 0.5});
    line.faults().add(RandomLoss{0.05});
    if (more) line.faults().add(RandomLoss{0.02});
    if (more) line.faults().add(Jitter{.max = Duration(100)});
    line.send(2000);
    return line.lost();
  };
  const std::vector<std::uint64_t> alone = lost_at_random(false, 1);
  const std::vector<std::uint64_t> together = lost_at_random(true, 1);
  EXPECT_TRUE(std::includes(together.begin(), together.end(), alone.begin(), alone.end()));
  EXPECT_GT(together.size(), alone.size());
  EXPECT_NE(lost_at_random(false, 2), alone);
}

TEST(Faults, TheTwoDirectionsAreApart) {
  Line line;
  line.faults().add(PeriodicLoss{1});
  ASSERT_TRUE(line.network->host(1).send(packet_to(0, 10, 5)));
  line.send(3);
  EXPECT_EQ(line.lost().size(), 3u);
  EXPECT_EQ(line.sender.tags(), std::vector<std::uint64_t>{5});
}

}  // namespace
}  // namespace clustar::transport::sim
