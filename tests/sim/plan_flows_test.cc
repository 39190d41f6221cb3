// ParaExpress's plans flow by flow against packet by packet: where both can run, they are to say nearly the same.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "bench/sim/flow_bed.h"
#include "bench/sim/planned.h"

namespace clustar::bench::sim {
namespace {

constexpr std::uint64_t kTenGigabit = 10'000'000'000;

struct FlowsCase {
  std::uint32_t ranks = 0, oversubscription = 1;
};

double by_packets(const FlowsCase& cluster, const px::Forest& forest, std::uint64_t bytes, std::uint64_t chunk) {
  Setup setup;
  setup.hosts = cluster.ranks;
  setup.options = driver_options(kTenGigabit);
  setup.line_bps = kTenGigabit;
  setup.round_trip = setup.base_rtt = std::chrono::microseconds(20);
  setup.path_known = true;
  setup.leaf_spine = true;
  setup.spines = std::max(1u, cluster.ranks / 2 / cluster.oversubscription);
  Testbed bed(setup);
  std::vector<std::uint32_t> hosts(cluster.ranks);
  std::iota(hosts.begin(), hosts.end(), 0u);
  Planned planned(bed, std::move(hosts));
  double took = 0;
  for (int round = 0; round < 4; ++round) {
    const auto ended = planned.all_reduce(forest, bytes, chunk, std::chrono::seconds(10));
    if (!ended) return 0;
    took = seconds(*ended);
  }
  return took;
}

class FlowsAndPackets : public testing::TestWithParam<FlowsCase> {};

TEST_P(FlowsAndPackets, TakeNearlyTheSameTime) {
  const FlowsCase cluster = GetParam();
  const auto group =
      px::make_group(cluster.ranks, 0, px::equal_regions(cluster.ranks, cluster.ranks / 2, cluster.oversubscription));
  const FlowBed bed(group);
  for (const px::Plan plan : {px::Plan::kDirect, px::Plan::kRing, px::Plan::kDoubleTree, px::Plan::kHierarchical}) {
    const px::Forest forest = px::build(plan, group);
    for (const std::uint64_t bytes : {4u << 10, 64u << 10, 1u << 20}) {
      const px::Cost cost{0, plan == px::Plan::kDoubleTree && bytes == 1u << 20 ? 16u : 1u};
      const std::uint64_t chunk = std::max<std::uint64_t>(px::chunk_bytes({plan, cost}, forest, bytes), 4096);
      const double packets = by_packets(cluster, forest, bytes, chunk);
      const double flows = bed.run({plan, cost}, bytes).seconds;
      ASSERT_GT(packets, 0) << px::to_string(plan);
      // Where many send to one, packets leave gaps that flows do not know.
      const bool many_to_one = plan == px::Plan::kDirect || plan == px::Plan::kHierarchical;
      EXPECT_GT(packets / flows, 0.85) << px::to_string(plan) << " " << bytes;
      EXPECT_LT(packets / flows, many_to_one ? 1.5 : 1.15) << px::to_string(plan) << " " << bytes;
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Each, FlowsAndPackets,
                         testing::Values(FlowsCase{4, 1}, FlowsCase{16, 1}, FlowsCase{16, 4}, FlowsCase{32, 8}),
                         [](const auto& param) {
                           return "ranks" + std::to_string(param.param.ranks) + "narrow" +
                                  std::to_string(param.param.oversubscription);
                         });

}  // namespace
}  // namespace clustar::bench::sim
