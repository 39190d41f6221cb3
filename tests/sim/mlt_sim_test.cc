// The MLT core over the simulated network: what it must do in named situations. Seed sweeps are in mlt_sweep_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "bench/sim/experiments.h"
#include "mlt/compare/recoveries.h"
#include "tests/sim/mlt_star.h"

namespace clustar::mlt::test {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using ::testing::IsEmpty;

double seconds(Duration d) { return static_cast<double>(d.count()) * 1e-9; }

TEST(MltSim, MessagesOfAllSizesArriveOnACleanNetwork) {
  Star star(2);
  for (const std::uint32_t bytes : {0u, 1u, 1408u, 1409u, 65536u, 1u << 20}) star.world->transfer(0, 1, bytes);
  EXPECT_TRUE(star.world->finish());
  EXPECT_EQ(star.world->finished().size(), 6u);
  EXPECT_THAT(star.world->violations(), IsEmpty());
  EXPECT_EQ(star.world->host(0).core().sender(0).counters().retransmitted, 0u);
}

// Bit/s of messages of 1 MiB, 16 outstanding.
double stream(Star& star, std::size_t messages) {
  std::size_t sent = 0;
  while (star.world->finished().size() < messages && star.world->now() < TimePoint(std::chrono::seconds(5))) {
    for (; sent < messages && sent < star.world->finished().size() + 16; ++sent) star.world->transfer(0, 1, 1 << 20);
    if (!star.simulation.step()) break;
  }
  EXPECT_EQ(star.world->finished().size(), messages);
  EXPECT_THAT(star.world->violations(), IsEmpty());
  return static_cast<double>(messages << 23) / seconds(star.world->now() - TimePoint{});
}

TEST(MltSim, RandomLossCostsLittleMoreThanWhatIsLost) {
  const compare::GoBackN go_back_n{};
  const auto goodput = [](const Recovery* recovery, double loss) {
    Options options;
    options.recovery = recovery;
    Star star(2, options);
    if (loss > 0) star.network->down(1).faults().add(sim::RandomLoss{loss});
    return stream(star, 256);
  };
  const double clean = goodput(nullptr, 0);
  EXPECT_GT(clean, 92e9);  // of 93.0: headers and Ethernet take the rest
  const struct { double loss, bar; } rows[] = {{1.0 / 4096, 0.99}, {1.0 / 1024, 0.97}, {1.0 / 256, 0.95}};
  for (const auto& row : rows) {
    const double ours = goodput(nullptr, row.loss) / clean;
    EXPECT_GE(ours, row.bar) << row.loss;
    EXPECT_GT(ours, goodput(&go_back_n, row.loss) / clean) << row.loss;
  }
}

TEST(MltSim, AnIncastTakesHardlyLongerThanTheLineNeeds) {
  Star star(16, {}, 100'000);
  for (std::uint32_t i = 1; i < 16; ++i) star.world->connect(i, 0);
  Rng rng(5);
  std::vector<double> rounds;
  for (int round = 0; round < 100; ++round) {
    for (std::uint32_t i = 1; i < 16; ++i) star.world->post(i, 0, 128 << 10);
    star.simulation.run_for(microseconds(30));
    const TimePoint begin = star.world->now();
    // Not all in the same nanosecond.
    std::vector<std::uint32_t> order(15);
    for (std::uint32_t i = 0; i < 15; ++i) order[i] = i + 1;
    for (std::size_t i = 14; i > 0; --i) std::swap(order[i], order[rng.below(i + 1)]);
    for (const std::uint32_t i : order) {
      star.world->send(i, 0, 128 << 10);
      star.simulation.run_for(Duration(static_cast<Duration::rep>(rng.below(100))));
    }
    ASSERT_TRUE(star.world->finish(milliseconds(500)));
    rounds.push_back(seconds(star.world->now() - begin));
    star.simulation.run_for(microseconds(50));
  }
  std::sort(rounds.begin(), rounds.end());
  // Every byte on the wire at line rate, and one way over the empty network.
  const double wire_bytes =
      15 * ((128 << 10) + packet_count(128 << 10, star.options.segment) * (66.0 + DataHeader::kSize));
  EXPECT_LE(rounds[98], 1.05 * (wire_bytes * 8 / 100e9 + 5e-6));
  EXPECT_EQ(star.network->drops().total(), 0u);
  EXPECT_THAT(star.world->violations(), IsEmpty());
}

// Short runs of what clustar-sim measures, with its bars.
class MltExperiment : public testing::TestWithParam<const char*> {};

TEST_P(MltExperiment, MeetsItsBars) {
  bench::sim::Settings settings;
  settings.length = bench::sim::Length::kQuick;
  std::size_t bars = 0;
  for (const bench::sim::Experiment& experiment : bench::sim::experiments()) {
    if (experiment.name != std::string(GetParam())) continue;
    for (const bench::sim::Row& row : experiment.run(settings)) {
      if (!row.bar) continue;
      ++bars;
      const bench::sim::Figure& figure = row.figures[row.bar->figure];
      EXPECT_TRUE(row.met()) << row.situation << ", " << row.arm << ": " << figure.name << " is " << figure.value
                             << ", the bar " << row.bar->limit;
    }
  }
  EXPECT_GT(bars, 0u);
}

INSTANTIATE_TEST_SUITE_P(Short, MltExperiment,
                         testing::Values("start-up", "bad-path", "mice", "fairness", "tolerance"));

TEST(MltSim, AFrozenSenderLosesNothingOnACleanNetwork) {
  Star star(2);
  star.network->host(0).freeze(TimePoint(microseconds(40)), TimePoint(milliseconds(50)));
  for (int i = 0; i < 8; ++i) star.world->transfer(0, 1, 1 << 20, tolerant(100'000, 8 << 20));
  EXPECT_TRUE(star.world->finish());
  EXPECT_GT(star.world->now(), TimePoint(milliseconds(50)));
  EXPECT_THAT(star.world->violations(), IsEmpty());
  for (const Finished& message : star.world->finished()) EXPECT_EQ(message.missing, 0u);
}

TEST(MltSim, ToleratedLossIsTakenAndBounded) {
  for (const double loss : {0.005, 0.02, 0.1}) {
    Star star(2);
    star.network->down(1).faults().add(sim::RandomLoss{loss});
    constexpr std::uint32_t kMessages = 32, kPpm = 10'000;
    for (std::uint32_t i = 0; i < kMessages; ++i) star.world->transfer(0, 1, 1 << 20, tolerant(kPpm, kMessages << 20));
    EXPECT_TRUE(star.world->finish());
    EXPECT_THAT(star.world->violations(), IsEmpty());
    std::uint64_t missing = 0;
    for (const Finished& message : star.world->finished()) missing += message.missing;
    EXPECT_GT(missing, 0u) << loss;
    EXPECT_LE(missing, (std::uint64_t{kMessages} << 20) * kPpm / 1'000'000) << loss;
  }
}

TEST(MltSim, ADeadPeerIsAnErrorWithinTheBound) {
  Options options;
  options.peer_timeout = milliseconds(200);
  Star star(2, options);
  star.network->host(1).freeze(TimePoint(microseconds(20)), TimePoint(std::chrono::seconds(100)));
  star.world->transfer(0, 1, 1 << 20);
  EXPECT_FALSE(star.world->finish(milliseconds(400)));
  EXPECT_TRUE(star.world->host(0).lost_a_peer());
}

}  // namespace
}  // namespace clustar::mlt::test
