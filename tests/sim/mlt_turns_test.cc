// Whose packets leave first, and who gets credit first, when messages have turns and levels.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "bench/sim/testbed.h"
#include "tests/sim/direct.h"

namespace clustar::mlt::test {
namespace {

using bench::sim::Done;
using bench::sim::Setup;
using bench::sim::Testbed;
using std::chrono::microseconds;
using std::chrono::milliseconds;

SendTerms with_turn(std::uint64_t rank, std::uint8_t level = 0) {
  SendTerms terms;
  terms.turn.rank = rank;
  terms.level = level;
  return terms;
}

constexpr std::uint32_t kBytes = 4 << 20;

// Of one host's messages to three others: which are over when.
std::vector<std::uint32_t> order_of(const std::vector<std::uint64_t>& ranks) {
  Setup setup;
  setup.hosts = 4;
  Testbed bed(setup);
  std::vector<std::uint32_t> order;
  bed.on_done([&](const Done& done) { order.push_back(done.lane); });
  std::vector<std::uint32_t> lanes;
  for (std::uint32_t host = 1; host < 4; ++host) lanes.push_back(bed.connect(0, host));
  for (std::size_t i = 0; i < ranks.size(); ++i) bed.transfer(lanes[i], kBytes, with_turn(ranks[i]));
  EXPECT_TRUE(bed.finish(milliseconds(100)));
  return order;
}

TEST(MltTurns, ConnectionsSendByRankAndThenByArrival) {
  EXPECT_EQ(order_of({2, 1, 0}), (std::vector<std::uint32_t>{2, 1, 0}));
  EXPECT_EQ(order_of({0, 0, 0}), (std::vector<std::uint32_t>{0, 1, 2}));
  EXPECT_EQ(order_of({1, 0, 1}), (std::vector<std::uint32_t>{1, 0, 2}));
}

TEST(MltTurns, ABetterMessageOvertakesOneOfItsConnection) {
  for (const bool better : {false, true}) {
    Direct direct;
    ASSERT_TRUE(direct.post(100 * 1408, 1) && direct.post(100 * 1408, 2));
    ASSERT_TRUE(direct.send(100 * 1408, 1, with_turn(5)));
    ASSERT_TRUE(direct.send(100 * 1408, 2, with_turn(better ? 1 : 5)));
    std::vector<std::uint32_t> sent;
    direct.loses = [&](const DataHeader& header) {
      sent.push_back(header.message);
      return false;
    };
    direct.run(milliseconds(10));
    const auto last = [&](std::uint32_t message) {
      return std::find(sent.rbegin(), sent.rend(), message) - sent.rbegin();
    };
    EXPECT_EQ(last(1) > last(0), better) << "who is sent to the end first";
    EXPECT_EQ(direct.received, 2);
  }
}

TEST(MltTurns, WhatIsPacedLeavesAtItsTimeAndAChangedTurnCounts) {
  Direct direct;
  SendTerms paced = with_turn(0);
  paced.turn.not_before = direct.now + milliseconds(2);
  ASSERT_TRUE(direct.post(1000, 1) && direct.post(1000, 2) && direct.post(1000, 3));
  ASSERT_TRUE(direct.send(1000, 1, paced));
  ASSERT_TRUE(direct.send(1000, 2, with_turn(9)));
  const TimePoint never = direct.now + std::chrono::hours(1);
  SendTerms far = with_turn(0);
  far.turn.not_before = never;
  ASSERT_TRUE(direct.send(1000, 3, far));
  direct.run(milliseconds(1));
  EXPECT_EQ(direct.received, 1) << "a message that may go does not wait for one that may not";
  direct.run(milliseconds(2));
  EXPECT_EQ(direct.received, 2);
  direct.from.set_turn(direct.sender, 2, Turn{}, direct.now);
  direct.run(milliseconds(1));
  EXPECT_EQ(direct.received, 3);
}

// Two hosts send to a third: how long the second takes; `alone`: the first sends to a fourth.
double time_of_second(std::uint8_t first_level, bool alone) {
  Setup setup;
  setup.hosts = 4;
  Testbed bed(setup);
  double us = 0;
  const std::uint32_t first = bed.connect(1, alone ? 3 : 0);
  const std::uint32_t second = bed.connect(2, 0);
  bed.on_done([&](const Done& done) {
    if (done.lane == second) us = bench::sim::microseconds(done.at - done.posted);
  });
  bed.transfer(first, 4 * kBytes, with_turn(0, first_level));
  // Under way before: credit cannot be taken back.
  bed.simulation().at(bed.now() + microseconds(100), [&] { bed.transfer(second, kBytes, with_turn(0, 0)); });
  EXPECT_TRUE(bed.finish(milliseconds(100)));
  return us;
}

TEST(MltTurns, CreditGoesToTheBestLevel) {
  const double alone = time_of_second(0, true);
  const double alike = time_of_second(0, false);
  const double before = time_of_second(1, false);
  EXPECT_GT(alone, 300);
  EXPECT_GT(alike, 1.8 * alone) << "half the line";
  EXPECT_LT(before, 1.2 * alone) << "nearly all of it: the other keeps an eighth";
}

// The credit is for one connection at a time.
TEST(MltTurns, ABestLevelThatNeverHasEnoughLeavesTheOthersSomething) {
  for (const std::uint8_t level : {0, 1}) {
    bench::sim::Setup setup;
    setup.hosts = 3;
    setup.options.credit_slack = 0;
    setup.base_rtt = std::chrono::nanoseconds(1);
    Testbed bed(setup);
    const std::uint32_t stream = bed.connect(1, 0);
    const std::uint32_t other = bed.connect(2, 0);
    double us = 0;
    bed.on_done([&](const Done& done) {
      if (done.lane == other) us = bench::sim::microseconds(done.at - done.posted);
      if (done.lane == stream && us == 0) bed.transfer(stream, kBytes, with_turn(0, 0));
    });
    for (int i = 0; i < 3; ++i) bed.transfer(stream, kBytes, with_turn(0, 0));
    bed.transfer(other, 256 << 10, with_turn(0, level));
    bed.finish(milliseconds(300));
    EXPECT_GT(us, 0) << "level " << int{level} << " was never served";
  }
}

}  // namespace
}  // namespace clustar::mlt::test
