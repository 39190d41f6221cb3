#include "bench/paraexpress/step_flows.h"

#include <gtest/gtest.h>

#include "bench/paraexpress/plan_report.h"
#include "bench/paraexpress/simulate.h"
#include "paraexpress/core/plans/build.h"

namespace clustar::bench::paraexpress {
namespace {

constexpr double kLine = 5e9;

FlowNetwork plain_network() {
  FlowNetwork network;
  network.nic_bytes_per_s = kLine;
  return network;
}

double step_seconds(px::Plan plan, const px::Group& group, std::uint64_t bytes, std::uint32_t chunks = 1) {
  return StepFlows(px::build(plan, group), group).run(plain_network(), group.regions, bytes, chunks).seconds;
}

TEST(StepFlows, take_what_can_be_worked_out_by_hand) {
  const px::Group group = px::make_group(16, 0, px::one_region(16));
  const std::uint64_t bytes = 16 << 20;
  const double buffer = static_cast<double>(bytes) / kLine;
  EXPECT_NEAR(step_seconds(px::Plan::kDirect, group, bytes), 2 * 15.0 / 16 * buffer + 40e-6, 1e-6);
  EXPECT_NEAR(step_seconds(px::Plan::kRing, group, bytes), 2 * 15.0 / 16 * buffer + 30 * 20e-6, 1e-6);
  EXPECT_NEAR(step_seconds(px::Plan::kServer, group, bytes), 2 * 15 * buffer + 40e-6, 1e-6);
  EXPECT_NEAR(step_seconds(px::Plan::kServer, group, bytes, 64), 15 * (1 + 1.0 / 64) * buffer + 40e-6, 1e-6);
}

TEST(StepFlows, headers_are_of_packets_and_messages) {
  FlowNetwork network = plain_network();
  EXPECT_EQ(network.wire_bytes(3000), 3000);
  network.packet_payload = 1000;
  network.packet_overhead = 100;
  network.message_overhead = 7;
  EXPECT_EQ(network.wire_bytes(3000), 3307);
  EXPECT_EQ(network.wire_bytes(1), 108);
  const px::Group group = px::make_group(8, 0, px::equal_regions(8, 4, 4));
  const FlowRun run =
      StepFlows(px::build(px::Plan::kDirect, group), group).run(network, group.regions, std::uint64_t{8} * 3000, 1);
  // 4 x 4 pairs of members across, one message for each and way.
  EXPECT_EQ(run.busiest_uplink_bytes, 2 * 16 * 3307);
  EXPECT_EQ(run.messages, 2u * 8 * 7);
}

// By classes and message by message, on regions of equal and of unequal sizes, ranks at random.
TEST(StepFlows, classes_of_hosts_change_nothing) {
  for (const std::uint32_t ranks : {7u, 24u, 32u}) {
    for (const bool by_number_of_rank : {false, true}) {
      px::Group group = px::make_group(ranks, 0, shuffled(px::equal_regions(ranks, 8, 4), ranks, 7));
      if (by_number_of_rank) group = by_number(group);
      for (const px::Plan plan : px::kPlans) {
        if (!px::makes_sense(plan, group)) continue;
        const px::Forest forest = px::build(plan, group);
        const StepFlows by_class(forest, group, 0), by_message(forest, group, ~std::size_t{0});
        for (const std::uint32_t chunks : {1u, 4u}) {
          const FlowRun one = by_class.run(plain_network(), group.regions, 1 << 20, chunks);
          const FlowRun other = by_message.run(plain_network(), group.regions, 1 << 20, chunks);
          EXPECT_NEAR(one.seconds / other.seconds, 1, 1e-9) << to_string(plan) << " " << ranks;
          EXPECT_NEAR(one.busiest_uplink_bytes, other.busiest_uplink_bytes, 1) << to_string(plan);
          EXPECT_EQ(one.messages, other.messages);
        }
      }
    }
  }
}

// Message by message, with nothing in step, it takes as long within a tenth. A hierarchical plan differs more: there a
// host sends its messages a window at a time, so uplinks idle while regions add up.
TEST(StepFlows, agree_with_the_simulation_of_messages) {
  px::Network network{kLine, 20e-6, 0, 0, 16 << 10, 4 << 20, {}};
  for (const double oversubscription : {1.0, 4.0}) {
    const px::Group group = px::make_group(32, 0, shuffled(px::equal_regions(32, 8, oversubscription), 32, 3));
    for (const px::Plan plan : {px::Plan::kDirect, px::Plan::kRing, px::Plan::kDoubleTree, px::Plan::kHierarchical}) {
      for (const std::uint64_t bytes : {4u << 10, 1u << 20, 64u << 20}) {
        const double messages = simulate(px::build(plan, group), group, network, bytes, {1, 8, 0.05}).seconds;
        EXPECT_NEAR(step_seconds(plan, group, bytes) / messages, 1, plan == px::Plan::kHierarchical ? 0.25 : 0.1)
            << to_string(plan) << " " << bytes;
      }
    }
  }
}

TEST(StepFlows, thousands_of_ranks_are_a_few_classes) {
  const std::uint32_t ranks = 1024;
  const px::Group group = px::make_group(ranks, 0, shuffled(px::equal_regions(ranks, 64, 2), ranks, 5));
  for (const auto& [plan, steps] :
       {std::pair{px::Plan::kDirect, 1u}, {px::Plan::kHierarchical, 2u}, {px::Plan::kRing, 1u}}) {
    const StepFlows flows(px::build(plan, group), group);
    EXPECT_EQ(flows.distinct_steps(), steps) << to_string(plan);
    EXPECT_LE(flows.most_classes(), std::size_t{1} << 14) << to_string(plan);
  }
}

}  // namespace
}  // namespace clustar::bench::paraexpress
