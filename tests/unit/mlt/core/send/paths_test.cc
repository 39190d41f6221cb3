#include "mlt/core/send/paths.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <deque>
#include <stdexcept>
#include <vector>

namespace clustar::mlt {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;
using PathState = PathSelector::State;

// Sends bursts of 8 packets every 80 us. Acknowledgements are known one round trip later; a loss when a later packet of
// its path is acknowledged, otherwise after a timeout of 800 us.
class Network {
 public:
  Network(std::uint32_t paths, std::uint64_t seed, const PathOptions& options = {})
      : selector(paths, options), rng_(seed), traffic_(paths) {
    rtt.fill(microseconds(200));
  }

  void run(Duration duration) {
    std::fill(traffic_.begin(), traffic_.end(), 0);
    for (const TimePoint end = now + duration; now < end; now += microseconds(80)) {
      for (std::uint32_t path = 0; path < selector.size(); ++path) declare(path, 0, now - microseconds(800));
      for (; !answers_.empty() && answers_.front().sent + microseconds(200) <= now; answers_.pop_front()) {
        const Packet packet = answers_.front();
        declare(packet.path, packet.number, TimePoint::min());
        const Duration sample = rtt[packet.path] + microseconds(rng_.below(20));
        selector.on_ack(packet.path, sample, rng_.chance(marks[packet.path]), now);
      }
      const PathSelector::Choice choice = selector.choose(rng_, now);
      traffic_[choice.path] += 8;
      trace.push_back(choice.path);
      for (int i = 0; i < 8; ++i) {
        const bool lost = rng_.chance(loss[choice.path]);
        (lost ? lost_[choice.path] : answers_).push_back({now, choice.path, ++sent_});
      }
    }
  }
  double share(std::uint32_t path) const {
    std::uint64_t total = 0;
    for (const std::uint64_t packets : traffic_) total += packets;
    return static_cast<double>(traffic_[path]) / static_cast<double>(total);
  }

  PathSelector selector;
  std::array<double, 32> loss{};
  std::array<double, 32> marks{};
  std::array<Duration, 32> rtt{};
  std::vector<std::uint8_t> trace;
  TimePoint now{};

 private:
  struct Packet {
    TimePoint sent;
    std::uint8_t path;
    std::uint64_t number;
  };
  void declare(std::uint32_t path, std::uint64_t before, TimePoint sent_by) {
    std::deque<Packet>& lost = lost_[path];
    while (!lost.empty() && (lost.front().number < before || lost.front().sent <= sent_by)) {
      lost.pop_front();
      selector.on_loss(path, now);
    }
  }
  Rng rng_;
  std::vector<std::uint64_t> traffic_;
  std::deque<Packet> answers_;
  std::array<std::deque<Packet>, 32> lost_;
  std::uint64_t sent_ = 0;
};

TEST(PathSelector, SpreadsEvenlyOverEqualPaths) {
  Network network(8, 1);
  network.run(seconds(2));
  for (std::uint32_t path = 0; path < 8; ++path) EXPECT_NEAR(network.share(path), 0.125, 0.03) << path;
}

TEST(PathSelector, AvoidsSlowAndMarkedPathsButKeepsAnEyeOnThem) {
  Network network(8, 2);
  network.rtt[3] = microseconds(400);
  network.marks[5] = 1;
  network.run(seconds(1));
  network.run(seconds(1));
  EXPECT_LT(network.share(3), 0.07);
  EXPECT_LT(network.share(5), 0.08);
  EXPECT_GT(network.share(3), 0.005) << "else its recovery would never be seen";
  EXPECT_EQ(network.selector.good(), 8u);
  network.rtt[3] = microseconds(200);
  network.run(seconds(1));
  network.run(seconds(1));
  EXPECT_GT(network.share(3), 0.08);
}

TEST(PathSelector, ALossyPathGetsNextToNothingAndComesBackHealed) {
  for (const std::uint64_t seed : {1, 2, 3, 4, 5}) {
    Network network(8, seed);
    network.run(milliseconds(100));
    network.loss[6] = 0.05;
    network.run(seconds(2));
    network.run(seconds(5));
    EXPECT_LT(network.share(6), 0.02) << "seed " << seed;
    network.loss[6] = 0;
    network.run(seconds(2));
    network.run(seconds(2));
    EXPECT_EQ(network.selector.state(6), PathState::kGood) << "seed " << seed;
    EXPECT_GT(network.share(6), 0.08) << "seed " << seed;
  }
}

TEST(PathSelector, LossThatAllShareSidelinesNone) {
  for (const double loss : {0.003, 0.01, 0.05, 0.1}) {
    Network network(8, 9);
    network.loss.fill(loss);
    network.run(seconds(4));  // 400,000 packets
    EXPECT_EQ(network.selector.sidelined(), 0u) << "loss " << loss;
  }
}

// Nor at the beginning, when each has been seen a few hundred times: 4,000 packets of 60 connections.
TEST(PathSelector, LossThatAllShareHardlyEverSidelinesOneOfANewConnection) {
  for (const double loss : {0.005, 0.01, 0.02, 0.05}) {
    int hit = 0;
    for (std::uint64_t seed = 1; seed <= 60; ++seed) {
      Network network(8, seed);
      network.loss.fill(loss);
      network.run(milliseconds(40));
      hit += network.selector.sidelined() > 0 ? 1 : 0;
    }
    EXPECT_LE(hit, 1) << "loss " << loss;
  }
}

// ECMP gives most of them the same bad link now and then.
TEST(PathSelector, MostPathsMayBeLossy) {
  for (const std::uint64_t seed : {1, 2, 3, 4, 5}) {
    Network network(8, seed);
    for (const std::uint32_t path : {0u, 2u, 3u, 5u, 6u}) network.loss[path] = 0.05;
    network.run(seconds(1));
    network.run(seconds(4));
    double bad = 0;
    for (const std::uint32_t path : {0u, 2u, 3u, 5u, 6u}) bad += network.share(path);
    EXPECT_LT(bad, 0.1) << "seed " << seed;
  }
}

TEST(PathSelector, ASilentPathIsSidelinedWithinARound) {
  Network network(8, 3);
  network.run(milliseconds(500));
  network.loss[2] = 1;
  network.run(milliseconds(20));
  EXPECT_NE(network.selector.state(2), PathState::kGood);
  network.run(seconds(5));
  EXPECT_LT(network.share(2), 0.001) << "only probes, ever rarer";
  EXPECT_EQ(network.selector.good(), 7u);
}

TEST(PathSelector, ARoundOfLossesOnOnePathIsEnough) {
  PathSelector selector(4, {});
  const TimePoint start{milliseconds(1)};
  for (std::uint32_t path = 0; path < 4; ++path) selector.on_ack(path, microseconds(100), false, start);
  const TimePoint later = start + milliseconds(1);
  for (std::uint32_t path = 1; path < 4; ++path) selector.on_ack(path, microseconds(100), false, later);
  for (int i = 0; i < 8; ++i) selector.on_loss(0, later);
  EXPECT_EQ(selector.state(0), PathState::kSidelined);
}

TEST(PathSelector, AnOutageOfAllPathsSidelinesNone) {
  Network network(8, 4);
  network.run(milliseconds(500));
  network.loss.fill(1);
  network.run(milliseconds(30));
  EXPECT_EQ(network.selector.sidelined(), 0u);
  network.loss.fill(0);
  network.run(milliseconds(100));
  EXPECT_EQ(network.selector.good(), 8u) << "those whose last losses came among the others' first deliveries are back";
}

TEST(PathSelector, TwoPathsStayAgainstLossAndOneAgainstSilence) {
  Network lossy(3, 5);
  lossy.loss[0] = 0.15;
  lossy.loss[1] = 0.1;
  lossy.run(seconds(3));
  EXPECT_EQ(lossy.selector.good(), 2u);
  EXPECT_EQ(lossy.selector.state(2), PathState::kGood);
  Network silent(2, 6);
  silent.run(milliseconds(100));
  silent.loss[0] = 1;
  silent.run(milliseconds(100));
  EXPECT_NE(silent.selector.state(0), PathState::kGood);
  silent.loss[1] = 1;
  silent.run(seconds(3));
  EXPECT_EQ(silent.selector.state(1), PathState::kGood);
  silent.loss.fill(0);
  silent.run(seconds(3));
  EXPECT_EQ(silent.selector.good(), 2u);
}

TEST(PathSelector, OnePathIsAlwaysChosen) {
  Network network(1, 7);
  network.loss[0] = 1;
  network.run(seconds(1));
  EXPECT_EQ(network.share(0), 1);
  EXPECT_EQ(network.selector.good(), 1u);
}

TEST(PathSelector, BackOffDoublesAndAProbeIsOneBurst) {
  Rng rng(8);
  PathSelector selector(3, {.backoff = milliseconds(10), .backoff_max = milliseconds(40)});
  TimePoint now{seconds(10)};
  const auto others_deliver = [&] {
    for (std::uint32_t path = 1; path < 3; ++path) selector.on_ack(path, microseconds(100), false, now);
  };
  selector.on_ack(0, microseconds(100), false, now);
  now += milliseconds(1);
  others_deliver();
  for (int i = 0; i < 8; ++i) selector.on_loss(0, now);
  for (const int wait : {10, 20, 40, 40}) {
    now += milliseconds(wait) - microseconds(1);
    ASSERT_FALSE(selector.choose(rng, now).probe) << wait;
    now += microseconds(1);
    const PathSelector::Choice probe = selector.choose(rng, now);
    ASSERT_TRUE(probe.probe) << wait;
    ASSERT_EQ(probe.path, 0);
    for (int i = 0; i < 100; ++i) ASSERT_NE(selector.choose(rng, now).path, 0);
    selector.on_loss(0, now);
    ASSERT_EQ(selector.state(0), PathState::kSidelined);
  }
  now += milliseconds(40);
  ASSERT_TRUE(selector.choose(rng, now).probe);
  for (int i = 0; i < 7; ++i) selector.on_ack(0, microseconds(100), false, now);
  EXPECT_EQ(selector.state(0), PathState::kProbing);
  selector.on_ack(0, microseconds(100), false, now);
  EXPECT_EQ(selector.state(0), PathState::kGood);
}

TEST(PathSelector, AShortProbeCountsWhenNothingOfItWasLost) {
  Rng rng(10);
  PathSelector selector(3, {});
  TimePoint now{seconds(10)};
  for (std::uint32_t path = 1; path < 3; ++path) selector.on_ack(path, microseconds(100), false, now);
  for (int i = 0; i < 8; ++i) selector.on_loss(0, now);
  ASSERT_EQ(selector.state(0), PathState::kSidelined);
  now += milliseconds(10);
  ASSERT_TRUE(selector.choose(rng, now).probe);
  selector.on_ack(0, microseconds(100), false, now);  // there was no more to send
  now += milliseconds(100);
  selector.choose(rng, now);
  EXPECT_EQ(selector.state(0), PathState::kGood);
}

TEST(PathSelector, IsDeterministic) {
  const auto run = [](std::uint64_t seed) {
    Network network(8, seed);
    network.loss[1] = 0.05;
    network.loss[2] = 0.5;
    network.marks[3] = 0.3;
    network.run(seconds(3));
    return network.trace;
  };
  EXPECT_EQ(run(11), run(11));
  EXPECT_NE(run(11), run(12));
}

TEST(PathSelector, IgnoresPathsThatDoNotExist) {
  PathSelector selector(4, {});
  selector.on_ack(4, microseconds(1), false, TimePoint{});
  selector.on_loss(0xffffffff, TimePoint{});
  for (int i = 0; i < 100; ++i) selector.on_ack(0, Duration::max(), true, TimePoint{});
  for (int i = 0; i < 100; ++i) selector.on_ack(1, Duration::min(), true, TimePoint{});
  EXPECT_GT(selector.srtt(0), Duration::zero());
  EXPECT_GT(selector.srtt(1), Duration::zero());
}

TEST(PathSelector, RefusesBadOptions) {
  EXPECT_THROW(PathSelector(0, {}), std::invalid_argument);
  EXPECT_THROW(PathSelector(33, {}), std::invalid_argument);
  EXPECT_THROW(PathSelector(8, {.loss_threshold = 0}), std::invalid_argument);
  EXPECT_THROW(PathSelector(8, {.silent_losses = 1}), std::invalid_argument);
  EXPECT_THROW(PathSelector(8, {.backoff = seconds(2)}), std::invalid_argument);
  EXPECT_THROW(PathSelector(8, {.backoff_max = std::chrono::hours(2)}), std::invalid_argument);
  EXPECT_THROW(PathSelector(8, {.probe_packets = 0}), std::invalid_argument);
  EXPECT_THROW(PathSelector(8, {.probe_timeout = Duration::zero()}), std::invalid_argument);
}

}  // namespace
}  // namespace clustar::mlt
