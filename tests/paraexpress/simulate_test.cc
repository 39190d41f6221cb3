#include "bench/paraexpress/simulate.h"

#include <gtest/gtest.h>

#include "bench/paraexpress/plan_report.h"
#include "paraexpress/core/plans/build.h"

namespace clustar::bench::paraexpress {
namespace {

const px::Network kFlat{5e9, 20e-6, 0, 0, 16 << 10, 4 << 20, {}};
constexpr double kRate = 5e9, kLatency = 20e-6;

double seconds(px::Plan plan, const px::Group& group, std::uint64_t bytes, const px::Network& network = kFlat,
               std::uint32_t chunks = 1) {
  return simulate(px::build(plan, group), group, network, bytes, {chunks, 8, 0.05}).seconds;
}

TEST(Simulate, takes_what_can_be_worked_out_by_hand) {
  const px::Group group = px::make_group(16, 0, px::one_region(16));
  const std::uint64_t bytes = 16 << 20;
  const double buffer = static_cast<double>(bytes) / kRate;
  EXPECT_NEAR(seconds(px::Plan::kDirect, group, bytes), 2 * 15.0 / 16 * buffer + 2 * kLatency, 0.02 * buffer);
  EXPECT_NEAR(seconds(px::Plan::kRing, group, bytes), 2 * 15.0 / 16 * buffer + 30 * kLatency, 0.02 * buffer);
  EXPECT_NEAR(seconds(px::Plan::kServer, group, bytes), 2 * 15 * buffer + 2 * kLatency, 0.1 * buffer);
  EXPECT_NEAR(seconds(px::Plan::kServer, group, bytes, kFlat, 64), 15 * buffer + 2 * kLatency, 0.5 * buffer);
}

TEST(Simulate, a_narrow_uplink_is_the_bottleneck) {
  const px::Group group = px::make_group(32, 0, px::equal_regions(32, 8, 4));
  const px::Network& network = kFlat;
  const std::uint64_t bytes = 64 << 20;
  const double uplink =
      2.0 * 8 * static_cast<double>(bytes) * 0.75 / px::uplink_rate(network, group.regions.regions[0]);
  EXPECT_NEAR(seconds(px::Plan::kDirect, group, bytes), uplink, 0.1 * uplink);
  const Simulation run = simulate(px::build(px::Plan::kDirect, group), group, network, bytes, {1, 8, 0.05});
  EXPECT_NEAR(run.busiest_uplink_bytes, 12.0 * static_cast<double>(bytes), 1);
  EXPECT_EQ(run.messages, 2u * 32 * 31);
}

TEST(Simulate, ends_for_every_plan_and_odd_numbers) {
  for (const std::uint32_t ranks : {1u, 2u, 3u, 7u, 17u}) {
    const px::Group group = px::make_group(ranks, 2, px::equal_regions(ranks + 2, 3, 2));
    px::Network network = kFlat;
    network.message_s = 1e-6;
    for (const px::Plan plan : px::kPlans) {
      for (const std::uint64_t bytes : {1u, 5u, 100'003u}) {
        for (const std::uint32_t chunks : {1u, 4u}) {
          const Simulation run = simulate(px::build(plan, group), group, network, bytes, {chunks, 2, 0.05});
          EXPECT_GE(run.seconds, ranks > 1 ? 2 * network.latency_s : 0) << to_string(plan) << " " << ranks;
        }
      }
    }
  }
}

// Also where a rank is a leaf of one tree, ready from the start, and an inner node of the other.
TEST(Simulate, agrees_with_the_model_where_the_chunks_are_equal) {
  px::Network network = kFlat;
  network.message_s = 1e-6;
  for (const std::uint32_t ranks : {8u, 64u}) {
    const px::Group group = px::make_group(ranks, 0, px::equal_regions(ranks, 8, 1));
    for (const px::Plan plan : {px::Plan::kDirect, px::Plan::kRing, px::Plan::kHierarchical, px::Plan::kDoubleTree}) {
      const px::Shape shape = px::shape_of(px::build(plan, group), group, network);
      for (const std::uint64_t bytes : {1u << 20, 64u << 20}) {
        const std::uint32_t chunks = std::min(px::least_cost(shape, network, bytes).chunks, kMostSimulatedChunks);
        const double modelled = px::cost(shape, network, bytes, chunks).seconds;
        EXPECT_NEAR(seconds(plan, group, bytes, network, chunks) / modelled, 1, 0.1)
            << to_string(plan) << " " << ranks << " ranks " << bytes << " bytes in " << chunks;
      }
    }
  }
}

TEST(Simulate, a_late_rank_is_waited_for) {
  const px::Group group = px::make_group(8, 0, px::one_region(8));
  px::Network network = kFlat;
  network.lag_s.assign(8, 0);
  network.lag_s[3] = 5e-3;
  for (const px::Plan plan : {px::Plan::kDirect, px::Plan::kRing, px::Plan::kServer, px::Plan::kDoubleTree}) {
    EXPECT_GT(seconds(plan, group, 1 << 20, network), 5e-3) << to_string(plan);
    EXPECT_LT(seconds(plan, group, 1 << 20, network), 5e-3 + 2 * seconds(plan, group, 1 << 20)) << to_string(plan);
  }
}

TEST(Simulate, says_the_same_twice) {
  const px::Group group = px::make_group(24, 0, shuffled(px::equal_regions(24, 8, 4), 24, 7));
  for (const px::Plan plan : {px::Plan::kRing, px::Plan::kHierarchical, px::Plan::kDoubleTree}) {
    EXPECT_EQ(seconds(plan, group, 1 << 20, kFlat, 4), seconds(plan, group, 1 << 20, kFlat, 4));
  }
}

TEST(Simulate, a_finer_grain_changes_little) {
  const px::Group group = px::make_group(24, 0, shuffled(px::equal_regions(24, 8, 4), 24, 7));
  for (const px::Plan plan : {px::Plan::kDirect, px::Plan::kRing, px::Plan::kHierarchical, px::Plan::kDoubleTree}) {
    const px::Forest forest = px::build(plan, group);
    const double coarse = simulate(forest, group, kFlat, 1 << 20, {4, 8, 0.05}).seconds;
    const double fine = simulate(forest, group, kFlat, 1 << 20, {4, 8, 0.0005}).seconds;
    EXPECT_NEAR(coarse / fine, 1, 0.03) << to_string(plan);
  }
}

}  // namespace
}  // namespace clustar::bench::paraexpress
