// ParaExpress's programs over simulated hosts: every plan ends, and its bytes cross the network as the plan says.
#include "bench/sim/planned.h"

#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "paraexpress/core/plans/build.h"

namespace clustar::bench::sim {
namespace {

namespace px = clustar::paraexpress;

constexpr std::uint32_t kRanks = 8;
constexpr std::uint64_t kBytes = 1 << 20;
constexpr Duration kLimit = std::chrono::seconds(10);

// Two leaves of four hosts, ranks in the order of their hosts.
Setup two_leaves() {
  Setup setup;
  setup.hosts = kRanks;
  setup.options = driver_options(10'000'000'000);
  setup.line_bps = 10'000'000'000;
  setup.leaf_spine = true;
  setup.spines = 2;
  return setup;
}

px::Group group() { return px::make_group(kRanks, 0, px::equal_regions(kRanks, kRanks / 2, 2)); }

std::vector<std::uint32_t> hosts() {
  std::vector<std::uint32_t> hosts(kRanks);
  std::iota(hosts.begin(), hosts.end(), 0u);
  return hosts;
}

std::uint64_t from_leaf(Testbed& bed, std::uint32_t leaf) {
  return bed.network().leaf_to_spine(leaf, 0).counters().bytes + bed.network().leaf_to_spine(leaf, 1).counters().bytes;
}

class PlannedOverPackets : public testing::TestWithParam<px::Plan> {};

TEST_P(PlannedOverPackets, EndsAlsoWhereMessagesAreLostAndOvertakeEachOther) {
  Testbed bed(two_leaves());
  for (std::uint32_t host = 0; host < kRanks; ++host) {
    bed.network().down(host).faults().add(transport::sim::RandomLoss{0.02});
  }
  Planned planned(bed, hosts());
  const px::Forest forest = px::build(GetParam(), group());
  for (const std::uint64_t chunk : {std::uint64_t{4096}, std::uint64_t{1} << 20}) {
    const auto took = planned.all_reduce(forest, kBytes, chunk, kLimit);
    ASSERT_TRUE(took) << chunk;
    // All of it goes through each host's line both ways, but for a part of it that stays there.
    EXPECT_GT(seconds(*took), kBytes * 8.0 / 10e9);
  }
  EXPECT_FALSE(planned.all_reduce(forest, kBytes, 4096, std::chrono::microseconds(100)));
}
INSTANTIATE_TEST_SUITE_P(Each, PlannedOverPackets,
                         testing::Values(px::Plan::kDirect, px::Plan::kServer, px::Plan::kRing, px::Plan::kDoubleTree,
                                         px::Plan::kHierarchical),
                         [](const auto& param) {
                           std::string name = px::to_string(param.param);
                           std::erase(name, '-');
                           return name;
                         });

// Copies of the buffer from one leaf to the other. Ring: one link crosses, with 2 (n - 1) / n. Hierarchical: one
// partial sum of the other leaf's half, one result of its own. Direct: both from or for each of four ranks.
TEST(Planned, AnUplinkCarriesWhatThePlanSays) {
  for (const auto& [plan, copies] :
       {std::pair{px::Plan::kRing, 1.75}, std::pair{px::Plan::kHierarchical, 1.0}, std::pair{px::Plan::kDirect, 4.0}}) {
    Testbed bed(two_leaves());
    Planned planned(bed, hosts());
    ASSERT_TRUE(planned.all_reduce(px::build(plan, group()), kBytes, 1 << 16, kLimit));
    const double carried = static_cast<double>(from_leaf(bed, 0)) / static_cast<double>(kBytes);
    EXPECT_NEAR(carried / copies, 1.07, 0.06)
        << px::to_string(plan) << ": headers and control packets are a part of it";
  }
}

}  // namespace
}  // namespace clustar::bench::sim
