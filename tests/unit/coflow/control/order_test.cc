#include "coflow/control/core/order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "transport/base/rng.h"

namespace clustar::coflow::control {
namespace {

ClassLoad load(std::uint32_t job, std::uint8_t urgency, std::uint64_t came, std::vector<BssiItem::Load> loads) {
  ClassLoad made{.job = job, .urgency = urgency, .weight = 1, .waits = true, .came = came, .loads = std::move(loads)};
  for (const auto& one : made.loads) made.largest = std::max(made.largest, one.bytes);
  return made;
}

using Order = std::vector<std::uint32_t>;

TEST(ControlOrder, TheMoreUrgentGoFirstWhateverTheirSize) {
  JobService service;
  const std::vector<ClassLoad> classes{load(1, 2, 0, {{0, 1.0}}), load(2, 0, 1, {{0, 50.0}}),
                                       load(3, 3, 2, {{0, 0.1}})};
  EXPECT_EQ(total_order(classes, 1, OrderPolicy::kBssi, service), (Order{1, 0, 2}));
}

TEST(ControlOrder, BssiServesTheSmallerAtTheBottleneckFirst) {
  JobService service;
  // Port 0 has most to do; there class 1 is the smallest.
  const std::vector<ClassLoad> classes{load(1, 2, 0, {{0, 5.0}, {1, 1.0}}), load(2, 2, 1, {{0, 2.0}}),
                                       load(3, 2, 2, {{1, 3.0}})};
  const Order order = total_order(classes, 2, OrderPolicy::kBssi, service);
  EXPECT_EQ(order.front(), 1u);
  EXPECT_EQ(total_order(classes, 2, OrderPolicy::kArrival, service), (Order{0, 1, 2}));
}

TEST(ControlOrder, ByWeight) {
  JobService service;
  std::vector<ClassLoad> classes{load(1, 2, 0, {{0, 2.0}}), load(2, 2, 1, {{0, 4.0}})};
  EXPECT_EQ(total_order(classes, 1, OrderPolicy::kBssi, service), (Order{0, 1}));
  classes[1].weight = 3;
  EXPECT_EQ(total_order(classes, 1, OrderPolicy::kBssi, service), (Order{1, 0}));
}

TEST(ControlOrder, JobsTakeTurns) {
  JobService service;
  const std::vector<ClassLoad> classes{load(1, 2, 0, {{0, 1.0}}), load(2, 2, 1, {{0, 3.0}})};
  double had[2] = {0, 0};
  for (int step = 0; step < 300; ++step) {
    const std::uint32_t first = total_order(classes, 1, OrderPolicy::kTurns, service).front();
    const double served = classes[first].largest;
    had[first] += served;
    service.served(classes[first].job, served, 1);
  }
  EXPECT_NEAR(had[0] / had[1], 1.0, 0.1);
}

TEST(ControlOrder, JobsThatDoNotMeetOweEachOtherNothing) {
  JobService service;
  service.served(1, 100, 1);
  // Job 1 had much, but meets job 2 nowhere; 3 meets 1.
  const std::vector<ClassLoad> classes{load(1, 2, 0, {{0, 1.0}}), load(2, 2, 1, {{1, 1.0}}), load(3, 2, 2, {{0, 9.0}})};
  const auto rounds = service.rounds(classes, 2);
  EXPECT_GT(rounds[0], 0u);
  EXPECT_EQ(rounds[1], 0u);
  EXPECT_EQ(rounds[2], 0u);
}

TEST(PlaceNumbers, GrowAndMoveAsFewAsPossible) {
  Rng rng(7);
  std::vector<std::uint32_t> known;
  std::uint64_t moved = 0, kept = 0;
  for (int round = 0; round < 3000; ++round) {
    // Some end, some come, one moves.
    std::erase_if(known, [&](std::uint32_t) { return rng.below(10) == 0; });
    for (std::uint64_t i = rng.below(6); i-- > 0;) {
      known.insert(known.begin() + static_cast<std::ptrdiff_t>(rng.below(known.size() + 1)), 0u);
    }
    if (known.size() > 2) {
      const std::size_t from = rng.below(known.size());
      const std::uint32_t one = known[from];
      known.erase(known.begin() + static_cast<std::ptrdiff_t>(from));
      known.insert(known.begin() + static_cast<std::ptrdiff_t>(rng.below(known.size() + 1)), one);
    }
    const auto numbers = PlaceNumbers::number(known);
    ASSERT_EQ(numbers.size(), known.size());
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      ASSERT_GT(numbers[i], i == 0 ? 0 : numbers[i - 1]);
      if (known[i] == 0) continue;
      ++(numbers[i] == known[i] ? kept : moved);
    }
    known = numbers;
  }
  EXPECT_GT(kept, 20 * moved);
}

TEST(PlaceNumbers, MakeRoomWhereThereIsNone) {
  const std::vector<std::uint32_t> known{1, 0, 2};
  const auto numbers = PlaceNumbers::number(known);
  EXPECT_TRUE(numbers[0] < numbers[1] && numbers[1] < numbers[2] && numbers[0] > 0);
}

}  // namespace
}  // namespace clustar::coflow::control
