// The loss contract on a simulated edge, and errors that the sweep found, each by itself.
#include <gtest/gtest.h>

#include <memory>
#include <tuple>

#include "tests/sim/mlt_star.h"

namespace clustar::mlt::test {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::uint32_t kPpm = 10'000;
constexpr std::uint32_t kMessageBytes = 256 * 1024;

struct TwoHosts : Star {
  explicit TwoHosts(const Options& given = {}, std::uint64_t seed = 1, std::uint32_t hosts = 2)
      : Star(hosts, given, 1 << 20, seed) {}
  ~TwoHosts() {
    for (const std::string& what : world->violations()) ADD_FAILURE() << what;
  }
  std::uint64_t missing() const {
    std::uint64_t sum = 0;
    for (const Finished& done : world->finished()) sum += done.missing;
    return sum;
  }
};

SendTerms terms_of(std::uint16_t ranks, std::uint16_t stage, std::uint32_t ppm = kPpm, std::uint32_t collective = 1) {
  SendTerms terms;
  terms.tolerant = true;
  terms.stage = stage;
  terms.communicator = 1;
  terms.collective = collective;
  terms.ranks = terms.edges = ranks;
  terms.collective_bytes = std::uint64_t{ranks} * 2 * kMessageBytes;
  terms.tolerance_ppm = ppm;
  return terms;
}

class LossOnRings : public testing::TestWithParam<std::tuple<int, int>> {};

// Ring ReduceScatters over one edge, two messages a stage. Of four ranks' 180 packets of 9,000 B about four are lost in
// each, and only a stage that costs little may keep one: hence several.
TEST_P(LossOnRings, SomeLossIsToleratedWhenTheNetworkLosesTwiceAsMuch) {
  const auto ranks = static_cast<std::uint16_t>(std::get<0>(GetParam()));
  Options options;
  options.segment = static_cast<std::uint16_t>(std::get<1>(GetParam()));
  TwoHosts hosts(options);
  hosts.network->down(1).faults().add(sim::RandomLoss{2.0 * kPpm / 1e6});
  for (std::uint32_t collective = 1; collective <= 8; ++collective) {
    const std::uint64_t before = hosts.missing();
    for (std::uint16_t stage = 0; stage + 1 < ranks; ++stage) {
      hosts.world->transfer(0, 1, kMessageBytes, terms_of(ranks, stage, kPpm, collective));
      hosts.world->transfer(0, 1, kMessageBytes, terms_of(ranks, stage, kPpm, collective));
      ASSERT_TRUE(hosts.world->finish());
    }
    const std::uint64_t missing = hosts.missing() - before;
    const Ledger* ledger = hosts.world->host(1).core().ledgers().find({1, collective});
    ASSERT_NE(ledger, nullptr);
    EXPECT_LE(ledger->counters().charged, ledger->bound());
    EXPECT_EQ(ledger->counters().missing_bytes, missing);
    EXPECT_LE(missing * 1'000'000, ledger->counters().eligible_bytes * kPpm);
  }
  EXPECT_GT(hosts.missing(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Rings, LossOnRings,
                         testing::Combine(testing::Values(4, 8, 16, 64), testing::Values(1408, 8900)));

TEST(LossContract, ASenderThatFreezesLosesNothing) {
  for (const std::uint16_t segment : {1408, 8900}) {
    for (int at = 1; at < 120; at += 7) {
      Options options;
      options.segment = segment;
      TwoHosts hosts(options);
      hosts.network->host(0).freeze(TimePoint(microseconds(at)), TimePoint(microseconds(at) + milliseconds(50)));
      for (int i = 0; i < 4; ++i) hosts.world->transfer(0, 1, kMessageBytes, terms_of(4, 0, 100'000));
      EXPECT_TRUE(hosts.world->finish());
      EXPECT_EQ(hosts.missing(), 0u) << "frozen at " << at << " us";
    }
  }
}

// Bit/s from host 2 to host 0 in 5 ms, while host 1 is in the middle of sending to host 0 and, from 50 us on, says no
// more.
TEST(MltCredit, ASenderThatFallsSilentGivesUpItsPartOfTheLine) {
  TwoHosts hosts({}, 1, 3);
  hosts.network->host(1).freeze(TimePoint(microseconds(50)), TimePoint(seconds(1)));
  hosts.world->transfer(1, 0, 8 << 20);
  std::size_t sent = 0;
  const auto stream_until = [&](TimePoint end) {
    while (hosts.world->now() < end) {
      for (; sent < hosts.world->finished().size() + 4; ++sent) hosts.world->transfer(2, 0, 1 << 20);
      ASSERT_TRUE(hosts.simulation.step());
    }
  };
  stream_until(TimePoint(milliseconds(2)));
  const std::size_t before = hosts.world->finished().size();
  stream_until(TimePoint(milliseconds(7)));
  const double rate = static_cast<double>(hosts.world->finished().size() - before) * (1 << 23) / 5e-3;
  EXPECT_GT(rate, 88e9) << "as if it were alone, but for a message";
}

TEST(MltPaths, APathThatIsDeadFromTheBeginningCostsNoMoreThanProbes) {
  for (const std::uint8_t paths : {2, 8, 32}) {
    for (int dead = 0; dead < paths; dead += 5) {
      Options options;
      options.paths = paths;
      TwoHosts hosts(options);
      for (std::uint32_t host = 0; host < 2; ++host) {
        hosts.network->up(host).faults().add(sim::LinkDown{}, {dead, -1, {}});
      }
      for (int i = 0; i < 20; ++i) {
        hosts.world->transfer(0, 1, 20'000);
        ASSERT_TRUE(hosts.world->finish(milliseconds(100))) << "path " << dead << " of " << +paths << ", message " << i;
      }
    }
  }
}

}  // namespace
}  // namespace clustar::mlt::test
