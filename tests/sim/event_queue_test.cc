#include "transport/sim/event_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "tests/sim/endpoints.h"
#include "transport/base/rng.h"
#include "transport/sim/simulation.h"

namespace clustar::transport::sim {
namespace {

struct Log final : EventTarget {
  explicit Log(EventQueue& events) : queue(events) {}
  void on_event(std::uint32_t, std::uint32_t argument) override { happened.emplace_back(queue.now(), argument); }
  EventQueue& queue;
  std::vector<std::pair<TimePoint, std::uint32_t>> happened;
};

TEST(EventQueue, IsAStableSortByTime) {
  EventQueue queue;
  Log log(queue);
  Rng rng(1);
  std::vector<std::pair<TimePoint, std::uint32_t>> expected;
  for (std::uint32_t i = 0; i < 20000; ++i) {
    // Clusters, gaps of many sizes and many equal times.
    const TimePoint at = ns(static_cast<std::int64_t>(rng.below(100) << rng.below(30)));
    expected.emplace_back(at, i);
    queue.push(at, log, 0, i);
  }
  std::stable_sort(expected.begin(), expected.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  while (queue.step()) {
  }
  EXPECT_EQ(log.happened, expected);
  EXPECT_EQ(queue.processed(), 20000u);
}

// As above, with pushes between the steps, against a plain list.
TEST(EventQueue, KeepsOrderWhileItRuns) {
  EventQueue queue;
  Log log(queue);
  Rng rng(2);
  std::vector<std::pair<TimePoint, std::uint32_t>> model;
  std::uint32_t next = 0;
  for (int round = 0; round < 20000; ++round) {
    for (std::uint64_t i = rng.below(3); i > 0; --i) {
      const TimePoint at = queue.now() + Duration(rng.below(1 + (1ull << rng.below(24))));
      queue.push(at, log, 0, next);
      model.emplace_back(at, next++);
    }
    if (model.empty()) continue;
    const auto first =
        std::min_element(model.begin(), model.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    ASSERT_EQ(queue.next_time(), first->first);
    ASSERT_TRUE(queue.step());
    ASSERT_EQ(log.happened.back(), *first) << "round " << round;
    model.erase(first);
    ASSERT_EQ(queue.size(), model.size());
  }
}

TEST(EventQueue, RunUntilIncludesItsEndAndMovesTimeOn) {
  EventQueue queue;
  Log log(queue);
  queue.push(ns(10), log, 0, 1);
  queue.push(ns(20), log, 0, 2);
  queue.push(ns(21), log, 0, 3);
  queue.run_until(ns(20));
  EXPECT_EQ(log.happened.size(), 2u);
  EXPECT_EQ(queue.now(), ns(20));
  queue.push(ns(5), log, 0, 4);  // passed already: now
  queue.run_until(ns(20));
  EXPECT_EQ(log.happened.back(), std::pair(ns(20), 4u));
  queue.run_until(ns(1'000'000'000'000));
  EXPECT_EQ(log.happened.size(), 4u);
  EXPECT_EQ(queue.now(), ns(1'000'000'000'000));
  EXPECT_EQ(queue.next_time(), kNever);
  EXPECT_FALSE(queue.step());
}

TEST(EventQueue, OneScheduledLongAgoGoesBeforeOneScheduledNow) {
  for (const std::int64_t later : {100'000, 65'536, 65'535, 1'000'000}) {
    EventQueue queue;
    Log log(queue);
    queue.push(ns(later), log, 0, 1);
    queue.run_until(ns(later - 30'000));
    queue.push(ns(later), log, 0, 2);
    EXPECT_EQ(queue.next_time(), ns(later));
    queue.run_until(ns(later));
    EXPECT_EQ(log.happened, (std::vector{std::pair(ns(later), 1u), std::pair(ns(later), 2u)}));
  }
}

struct Alarm final : EventTarget {
  explicit Alarm(EventQueue& events) : queue(events), timer(events, *this, 7) {}
  void on_event(std::uint32_t kind, std::uint32_t argument) override {
    EXPECT_EQ(kind, 7u);
    if (timer.due(argument)) rang.push_back(queue.now());
  }
  EventQueue& queue;
  Timer timer;
  std::vector<TimePoint> rang;
};

TEST(Timer, RingsOnceAtItsLatestDeadline) {
  EventQueue queue;
  Alarm alarm(queue);
  alarm.timer.arm(ns(100));
  alarm.timer.arm(ns(300));
  alarm.timer.arm(ns(200));
  queue.run_until(ns(1000));
  EXPECT_EQ(alarm.rang, std::vector<TimePoint>{ns(200)});
  alarm.timer.arm(ns(2000));
  alarm.timer.arm(ns(1500));  // earlier: a second event, and the first is void
  queue.run_until(ns(1500));
  EXPECT_EQ(alarm.rang.back(), ns(1500));
  alarm.timer.arm(ns(1800));
  alarm.timer.arm(kNever);
  queue.run_until(ns(5000));
  EXPECT_EQ(alarm.rang.size(), 2u);
  EXPECT_TRUE(queue.empty());
}

TEST(Timer, MovingItLaterAddsNoEvent) {
  EventQueue queue;
  Alarm alarm(queue);
  for (int i = 1; i <= 100000; ++i) alarm.timer.arm(ns(1000 + i));
  EXPECT_EQ(queue.size(), 1u);
  queue.run_until(ns(1'000'000));
  EXPECT_EQ(alarm.rang, std::vector<TimePoint>{ns(101000)});
  EXPECT_EQ(queue.processed(), 2u);
}

TEST(Simulation, CallbacksMayScheduleCallbacks) {
  Simulation simulation;
  std::vector<TimePoint> happened;
  simulation.at(ns(5), [&] {
    happened.push_back(simulation.now());
    EXPECT_TRUE(simulation.running());
    for (int i = 1; i < 4; ++i) simulation.at(ns(5 + i), [&] { happened.push_back(simulation.now()); });
  });
  EXPECT_TRUE(simulation.run(100));
  EXPECT_EQ(happened, (std::vector<TimePoint>{ns(5), ns(6), ns(7), ns(8)}));
}

}  // namespace
}  // namespace clustar::transport::sim
