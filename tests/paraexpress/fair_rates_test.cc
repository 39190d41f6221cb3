#include "bench/paraexpress/fair_rates.h"

#include <gtest/gtest.h>

#include "transport/base/rng.h"

namespace clustar::bench::paraexpress {
namespace {

FlowPath path(std::initializer_list<std::uint32_t> resources) {
  FlowPath made;
  for (const std::uint32_t resource : resources) made.add(resource);
  return made;
}

TEST(FairRates, are_those_worked_out_by_hand) {
  FairRates fair({10, 10, 4});
  std::vector<double> rates;
  fair.fill({path({0}), path({0, 1}), path({1, 2}), path({2})}, rates);
  EXPECT_EQ(rates, (std::vector<double>{5, 5, 2, 2}));
  fair.fill({path({0}), path({0, 2})}, rates);
  EXPECT_EQ(rates, (std::vector<double>{6, 4}));
  fair.fill({}, rates);
  EXPECT_TRUE(rates.empty());
}

TEST(FairRates, copies_get_what_as_many_flows_would) {
  FairRates fair({12, 9, 5});
  FlowPath alike = path({0, 1});
  alike.copies = 3;
  std::vector<double> once, apart;
  fair.fill({alike, path({0}), path({1, 2})}, once);
  fair.fill({path({0, 1}), path({0, 1}), path({0, 1}), path({0}), path({1, 2})}, apart);
  EXPECT_EQ(once, (std::vector<double>{apart[0], apart[3], apart[4]}));
  EXPECT_EQ(once, (std::vector<double>{2.25, 5.25, 2.25}));
}

// Max-min: within the capacities, and each flow has a full resource on which nobody is faster.
TEST(FairRates, are_max_min_fair_for_any_flows) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    Rng rng(seed);
    std::vector<double> capacities(2 + rng.below(12));
    for (double& capacity : capacities) capacity = 1 + static_cast<double>(rng.below(20));
    std::vector<FlowPath> flows(1 + rng.below(60));
    for (FlowPath& flow : flows) {
      for (std::uint32_t resource = 0; resource < capacities.size() && flow.count < 4; ++resource) {
        if (rng.chance(0.3)) flow.add(resource);
      }
      if (flow.count == 0) flow.add(static_cast<std::uint32_t>(rng.below(capacities.size())));
    }
    FairRates fair(capacities);
    std::vector<double> rates;
    for (int again = 0; again < 2; ++again) fair.fill(flows, rates);
    std::vector<double> used(capacities.size(), 0), fastest(capacities.size(), 0);
    for (std::size_t i = 0; i < flows.size(); ++i) {
      for (std::uint32_t at = 0; at < flows[i].count; ++at) {
        used[flows[i].resources[at]] += rates[i];
        fastest[flows[i].resources[at]] = std::max(fastest[flows[i].resources[at]], rates[i]);
      }
    }
    for (std::size_t i = 0; i < capacities.size(); ++i) ASSERT_LE(used[i], capacities[i] * (1 + 1e-9));
    for (std::size_t i = 0; i < flows.size(); ++i) {
      bool limited = false;
      for (std::uint32_t at = 0; at < flows[i].count; ++at) {
        const std::uint32_t resource = flows[i].resources[at];
        limited = limited ||
                  (used[resource] > capacities[resource] * (1 - 1e-9) && rates[i] > fastest[resource] * (1 - 1e-9));
      }
      ASSERT_TRUE(limited) << "seed " << seed << " flow " << i;
    }
  }
}

}  // namespace
}  // namespace clustar::bench::paraexpress
