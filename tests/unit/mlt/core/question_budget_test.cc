#include "mlt/core/question_budget.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>
#include <utility>
#include <vector>

#include "transport/base/rng.h"

namespace clustar::mlt {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr TimePoint kFirst{seconds(7)};

class QuestionBudgetTest : public testing::Test {
 protected:
  bool may_ask() {
    TimePoint place{};
    return !questions.take(place, now);
  }
  int take_all() {
    int taken = 0;
    while (may_ask()) ++taken;
    return taken;
  }

  QuestionBudget questions;
  TimePoint now = kFirst;
};

TEST_F(QuestionBudgetTest, SixtyFourMayBeAskedAtOnce) {
  EXPECT_EQ(take_all(), 64);
  now += seconds(1);
  EXPECT_EQ(take_all(), 64) << "rest saves no more";
}

TEST_F(QuestionBudgetTest, WhatArrivesEarnsMore) {
  take_all();
  now += milliseconds(1);  // what the attempt in vain above had taken is over
  take_all();
  for (int i = 0; i < 16 * 11; ++i) questions.earn();
  EXPECT_EQ(take_all(), 10);
  for (int i = 0; i < 1'000'000; ++i) questions.earn();
  EXPECT_EQ(take_all(), 64) << "never more than a burst";
}

// How often each of so many messages asks that want to all the time, a millisecond or so after their latest question.
std::vector<int> questions_of(int count, Duration time) {
  QuestionBudget questions;
  Rng random(1);
  std::vector<TimePoint> places(static_cast<std::size_t>(count));
  std::vector<int> asked(places.size());
  using Turn = std::pair<TimePoint, std::size_t>;
  std::priority_queue<Turn, std::vector<Turn>, std::greater<>> turns;
  for (std::size_t i = 0; i < places.size(); ++i) turns.emplace(kFirst, i);
  while (turns.top().first < kFirst + time) {
    const auto [now, i] = turns.top();
    turns.pop();
    const auto later = questions.take(places[i], now);
    if (!later) ++asked[i];
    EXPECT_TRUE(!later || (*later > now && *later <= now + milliseconds(200)));
    turns.emplace(later ? *later : now + microseconds(750 + static_cast<int>(random.below(250))), i);
  }
  return asked;
}

TEST_F(QuestionBudgetTest, EachHasItsTurnAndThereAreFiveThousandPerSecond) {
  const std::vector<int> asked = questions_of(300, seconds(3));
  EXPECT_NEAR(std::accumulate(asked.begin(), asked.end(), 0), 15'064, 2);
  for (const int times : asked) EXPECT_NEAR(times, 50, 2);
}

TEST_F(QuestionBudgetTest, WhoFindsTheLineFullIsNotForgotten) {
  const std::vector<int> asked = questions_of(5000, seconds(30));
  EXPECT_NEAR(std::accumulate(asked.begin(), asked.end(), 0), 150'064, 2);
  EXPECT_GE(*std::min_element(asked.begin(), asked.end()), 5) << "30 on the average";
}

}  // namespace
}  // namespace clustar::mlt
