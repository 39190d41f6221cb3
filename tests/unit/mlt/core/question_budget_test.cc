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
  int take_all() {
    int taken = 0;
    while (!questions.take(now)) ++taken;
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
  for (int i = 0; i < 16 * 10; ++i) questions.earn();
  EXPECT_EQ(take_all(), 10);
  for (int i = 0; i < 1'000'000; ++i) questions.earn();
  EXPECT_EQ(take_all(), 64) << "never more than a burst";
}

// Thousands that were refused, and whose answers then came, leave nothing behind.
TEST_F(QuestionBudgetTest, AfterAStormTheNextQuestionIsAskedSoon) {
  for (int i = 0; i < 5000; ++i) questions.take(now);
  now += milliseconds(1);
  EXPECT_EQ(take_all(), 5);
}

TEST_F(QuestionBudgetTest, WhoIsRefusedWaitsLongerTheMoreAre) {
  take_all();
  EXPECT_LE(*questions.take(now), now + milliseconds(1));
  TimePoint latest = now;
  for (int i = 0; i < 10'000; ++i) latest = std::max(latest, *questions.take(now));
  EXPECT_GT(latest, now + milliseconds(190));
  EXPECT_LE(latest, now + milliseconds(200));
  now += milliseconds(10);
  take_all();
  now += milliseconds(10);
  questions.take(now);  // half of the bucket was full: nobody waits any more
  take_all();
  EXPECT_LE(*questions.take(now), now + milliseconds(1));
}

// How often each of so many messages asks that want to all the time, a millisecond or so after their latest question.
std::vector<int> questions_of(int count, Duration time) {
  QuestionBudget questions;
  Rng random(1);
  std::vector<int> asked(static_cast<std::size_t>(count));
  using Turn = std::pair<TimePoint, std::size_t>;
  std::priority_queue<Turn, std::vector<Turn>, std::greater<>> turns;
  for (std::size_t i = 0; i < asked.size(); ++i) turns.emplace(kFirst, i);
  while (turns.top().first < kFirst + time) {
    const auto [now, i] = turns.top();
    turns.pop();
    const auto later = questions.take(now);
    if (!later) ++asked[i];
    EXPECT_TRUE(!later || *later > now);
    turns.emplace(later ? *later : now + microseconds(750 + static_cast<int>(random.below(250))), i);
  }
  return asked;
}

TEST(QuestionBudget, EachHasItsTurnAndThereAreFiveThousandPerSecond) {
  const std::vector<int> some = questions_of(300, seconds(10));
  EXPECT_NEAR(std::accumulate(some.begin(), some.end(), 0), 50'000, 500);
  EXPECT_GE(*std::min_element(some.begin(), some.end()), 80) << "167 on the average";
  const std::vector<int> many = questions_of(5000, seconds(30));
  EXPECT_NEAR(std::accumulate(many.begin(), many.end(), 0), 150'000, 500);
  EXPECT_GE(*std::min_element(many.begin(), many.end()), 8) << "30 on the average";
}

// A question and its answer are about 200 bytes.
TEST(QuestionBudget, OnASlowLineQuestionsTakeASixteenthOfIt) {
  for (const std::uint64_t line_rate : {1'000'000u, 3'125'000u}) {
    QuestionBudget questions(line_rate);
    std::uint64_t asked = 0;
    for (TimePoint now = kFirst; now < kFirst + seconds(10); now += microseconds(100)) {
      while (!questions.take(now)) ++asked;
      EXPECT_LE(*questions.take(now), now + milliseconds(200));
    }
    EXPECT_NEAR(static_cast<double>(asked * 200) / (10.0 * static_cast<double>(line_rate)), 1.0 / 16, 0.005);
  }
}

}  // namespace
}  // namespace clustar::mlt
