// Parity over the simulated network: every byte at its place or missing within its terms, and what a loss costs on a
// long way.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bench/sim/collectives.h"
#include "tests/sim/mlt_star.h"

namespace clustar::mlt::test {
namespace {

using std::chrono::milliseconds;
using ::testing::IsEmpty;

Options with_parity() {
  Options options;
  options.parity = true;
  options.parity_from = Duration(0);
  return options;
}

TEST(MltSimParity, EveryByteIsRightOrMissingWithinItsTerms) {
  for (const double loss : {1e-3, 1e-2, 5e-2, 0.3}) {
    for (std::uint64_t seed = 1; seed <= 4; ++seed) {
      SCOPED_TRACE(::testing::Message() << loss << " lost, seed " << seed);
      Options options = with_parity();
      options.max_parity = seed == 4 ? 3 : 64;
      Star star(2, options, 1 << 20, seed);
      star.network->down(1).faults().add(sim::RandomLoss{loss});
      std::uint64_t missing = 0;
      for (int round = 0; round < 8; ++round) {
        for (const std::uint32_t bytes : {0u, 1u, 1408u, 1409u, 90'113u, 65536u, 1u << 20}) {
          star.world->transfer(0, 1, bytes);
          star.world->transfer(0, 1, bytes, tolerant(1000, 8ull << 20));
        }
        ASSERT_TRUE(star.world->finish());
      }
      EXPECT_THAT(star.world->violations(), IsEmpty());
      for (const Finished& one : star.world->finished()) missing += one.missing;
      EXPECT_EQ(star.world->host(1).core().ledgers().totals().missing_bytes, missing);
      if (loss == 0.3) continue;  // more than it is for
      EXPECT_GT(star.world->host(1).rebuilt(), 0u);
      EXPECT_GT(star.world->host(0).core().sender(0).counters().parity, 0u);
    }
  }
}

// The same seeds without it are what they were: nothing of it goes where nothing is lost.
TEST(MltSimParity, ACleanLineIsWhatItWas) {
  const auto end = [](const Options& options) {
    Star star(2, options);
    for (int i = 0; i < 64; ++i) star.world->transfer(0, 1, 1 << 20);
    EXPECT_TRUE(star.world->finish());
    EXPECT_EQ(star.world->host(0).core().sender(0).counters().parity, 0u);
    return star.simulation.digest().value();
  };
  EXPECT_EQ(end(with_parity()), end(Options{}));
}

// Mean of ten all-reduces of a ring of four over 200 Mbit/s and 40 ms, after a first one.
Duration ring_step(std::uint32_t bytes, double loss, bool parity) {
  constexpr std::uint64_t kBps = 200'000'000;
  bench::sim::Setup setup;
  setup.hosts = 4;
  setup.options = bench::sim::driver_options(kBps);
  setup.options.parity = parity;
  setup.round_trip = milliseconds(40);
  setup.base_rtt = setup.options.base_rtt;
  setup.path_known = true;
  setup.line_bps = kBps;
  setup.buffer_bytes = 1'000'000;
  setup.mark_above = ~std::uint64_t{0};
  bench::sim::Testbed bed(setup);
  for (std::uint32_t host = 0; host < 4 && loss > 0; ++host) {
    bed.network().down(host).faults().add(sim::RandomLoss{loss});
  }
  bench::sim::AllReduces reduces(bed, {4, bytes, true, 0});
  Duration sum{};
  for (int round = 0; round < 11; ++round) {
    const auto took = reduces.run(std::chrono::seconds(60));
    EXPECT_TRUE(took);
    if (round > 0 && took) sum += *took;
  }
  EXPECT_TRUE(loss > 0 || reduces.sums().parity == 0);
  EXPECT_TRUE(!parity || loss == 0 || reduces.sums().rebuilt > 0);
  return sum / 10;
}

TEST(MltSimParity, ALossOnALongWayCostsLittle) {
  for (const std::uint32_t bytes : {64u << 10, 1u << 20}) {
    const Duration clean = ring_step(bytes, 0, true);
    EXPECT_LE(ring_step(bytes, 1e-3, true), clean * 110 / 100) << bytes;
    EXPECT_LE(ring_step(bytes, 1e-2, true), clean * 125 / 100) << bytes;
    EXPECT_GE(ring_step(bytes, 1e-3, false), clean * 115 / 100) << "without it, or this says nothing";
  }
}

}  // namespace
}  // namespace clustar::mlt::test
