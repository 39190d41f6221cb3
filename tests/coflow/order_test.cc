// BSSI against what it is defined as, against the best order there is, and its cuts into levels.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "coflow/core/bssi_order.h"
#include "coflow/core/levels.h"
#include "transport/base/rng.h"

namespace clustar::coflow {
namespace {

using Loads = std::vector<std::vector<BssiItem::Load>>;

std::vector<std::uint32_t> bssi(const Loads& loads, const std::vector<double>& weights, std::size_t ports) {
  std::vector<BssiItem> items;
  for (std::size_t i = 0; i < loads.size(); ++i) items.push_back({loads[i], weights[i]});
  BssiOrder order(ports);
  const auto found = order(items);
  return {found.begin(), found.end()};
}

// Coflows one after the other as each port comes to them: the weighted sum of their ends, with ports of one byte a
// unit.
double cost(const Loads& loads, const std::vector<double>& weights, std::size_t ports,
            const std::vector<std::uint32_t>& order) {
  std::vector<double> busy(ports, 0);
  double sum = 0;
  for (const std::uint32_t item : order) {
    double end = 0;
    for (const auto& load : loads[item]) {
      busy[load.port] += load.bytes;
      end = std::max(end, busy[load.port]);
    }
    sum += weights[item] * end;
  }
  return sum;
}

TEST(BssiOrder, OnOnePortItIsSmithsRule) {
  const Loads loads{{{0, 30}}, {{0, 10}}, {{0, 20}}};
  EXPECT_EQ(bssi(loads, {1, 1, 1}, 1), (std::vector<std::uint32_t>{1, 2, 0}));
  EXPECT_EQ(bssi(loads, {9, 1, 1}, 1), (std::vector<std::uint32_t>{0, 1, 2}));
  EXPECT_EQ(bssi({{{0, 5}}, {{0, 5}}}, {1, 1}, 1), (std::vector<std::uint32_t>{0, 1})) << "equal ones keep their order";
}

// By hand. Port 0 has 12, port 1 11. At port 0, coflow 0 has weight per byte 1/8, coflow 1 1/4: 0 goes last, and 1
// keeps 1 - 4/8 = 1/2. Then port 1 has 11: coflow 1 has (1/2)/3, coflow 2 1/8: 2 goes before 0.
TEST(BssiOrder, ScalesWeightsAtTheBottleneck) {
  const Loads loads{{{0, 8}}, {{0, 4}, {1, 3}}, {{1, 8}}};
  EXPECT_EQ(bssi(loads, {1, 1, 1}, 2), (std::vector<std::uint32_t>{1, 2, 0}));
}

TEST(BssiOrder, IsWithinTwiceTheBestOrder) {
  double worst = 0, sum = 0;
  constexpr int kOrders = 300;
  for (std::uint64_t seed = 1; seed <= kOrders; ++seed) {
    Rng rng(seed);
    const std::size_t ports = 1 + rng.below(4), count = 1 + rng.below(6);
    Loads loads(count);
    std::vector<double> weights;
    for (auto& one : loads) {
      for (std::uint32_t port = 0; port < ports; ++port) {
        if (rng.chance(0.6)) one.push_back({port, 1 + static_cast<double>(rng.below(20))});
      }
      if (one.empty()) one.push_back({0, 1});
      weights.push_back(1 + static_cast<double>(rng.below(3)));
    }
    const auto order = bssi(loads, weights, ports);
    std::vector<std::uint32_t> any(count);
    std::iota(any.begin(), any.end(), 0u);
    ASSERT_TRUE(std::is_permutation(order.begin(), order.end(), any.begin(), any.end())) << "seed " << seed;
    double best = std::numeric_limits<double>::infinity();
    do best = std::min(best, cost(loads, weights, ports, any));
    while (std::next_permutation(any.begin(), any.end()));
    const double ratio = cost(loads, weights, ports, order) / best;
    worst = std::max(worst, ratio);
    sum += ratio;
  }
  EXPECT_LE(worst, 2) << "the bound of the order alone; 4 with a rate allocation that keeps it";
  EXPECT_LE(sum / kOrders, 1.05);
}

TEST(BssiOrder, TakesItemsWithoutBytes) {
  EXPECT_EQ(bssi({{{0, 3}}, {}, {{0, 1}}}, {1, 1, 1}, 1), (std::vector<std::uint32_t>{1, 2, 0}));
  EXPECT_TRUE(bssi({}, {}, 1).empty());
}

constexpr double kSpread = 1000;

TEST(Levels, EachHasAMultipleOfTheOneBefore) {
  Table table(2, 1);
  std::vector<CoflowId> order;
  for (int i = 0; i < 1111; ++i) order.push_back(table.add({.flows = {{0, 1, 10}}}, TimePoint{}).value());
  std::vector<std::size_t> sizes;
  for (const auto& level : into_levels(table, order, 4, kSpread)) sizes.push_back(level.size());
  EXPECT_EQ(sizes, (std::vector<std::size_t>{1, 10, 100, 1000}));
  for (const auto& level : into_levels(table, order, 11, 1)) EXPECT_EQ(level.size(), 101u) << "equal ones";
  EXPECT_EQ(into_levels(table, order, 0, kSpread).size(), 1111u);
  order.resize(16);
  EXPECT_EQ(into_levels(table, order, 20, kSpread).size(), 16u);
  EXPECT_EQ(into_levels(table, order, 1, kSpread).size(), 1u);
  EXPECT_TRUE(into_levels(table, {}, 4, kSpread).empty());
}

TEST(Levels, KeepTheOrderAndLoseNothing) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    Rng rng(seed);
    Table table(2, 1);
    std::vector<CoflowId> order;
    const auto count = 1 + rng.below(40);
    for (std::uint64_t i = 0; i < count; ++i) {
      const double bytes = rng.chance(0.2) ? 10000 : 1 + static_cast<double>(rng.below(50));
      order.push_back(table.add({.flows = {{0, 1, bytes}}}, TimePoint{}).value());
    }
    const int levels = 1 + static_cast<int>(rng.below(8));
    std::vector<CoflowId> all;
    const auto classes = into_levels(table, order, levels, kSpread);
    EXPECT_LE(classes.size(), static_cast<std::size_t>(levels));
    for (const auto& one : classes) {
      EXPECT_FALSE(one.empty());
      all.insert(all.end(), one.begin(), one.end());
    }
    EXPECT_EQ(all, order) << "seed " << seed;
  }
}

}  // namespace
}  // namespace clustar::coflow
