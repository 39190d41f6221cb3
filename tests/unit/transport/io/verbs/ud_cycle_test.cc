// When a queue pair that fails goes on, and when it is given up: in simulated time.
#include "transport/io/verbs/ud_cycle.h"

#include <gtest/gtest.h>

#include <chrono>
#include <deque>
#include <optional>

namespace clustar::transport::io::verbs {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Verdict = UdCycle::Verdict;

constexpr Duration kLinkPatience = seconds(30);

// A queue pair that is sent to every millisecond and looked at as often.
class Sent {
 public:
  // What is given up, or kGoesOn after `duration`.
  Verdict pass(Duration duration, bool works, bool port_active) {
    for (const TimePoint end = now_ + duration; now_ < end; now_ += milliseconds(1)) {
      if (cycle_.due(now_)) {
        cycle_.on_resumed(now_);
        ++restarts_;
      }
      if (cycle_.down()) continue;
      if (works) {
        cycle_.on_success(now_);
      } else if (const Verdict verdict = cycle_.on_failure(now_, port_active); verdict != Verdict::kGoesOn) {
        return verdict;
      }
    }
    return Verdict::kGoesOn;
  }
  void sleep(Duration duration) { now_ += duration; }
  Duration time() const { return now_ - TimePoint{}; }
  UdCycle& cycle() { return cycle_; }
  int restarts() const { return restarts_; }

 private:
  UdCycle cycle_{kLinkPatience};
  TimePoint now_{};
  int restarts_ = 0;
};

TEST(UdCycle, GoesOnAfterAPauseAndNotEarlier) {
  UdCycle cycle(kLinkPatience);
  const TimePoint now = TimePoint{} + seconds(7);
  EXPECT_FALSE(cycle.down() || cycle.troubled() || cycle.due(now));
  EXPECT_EQ(cycle.on_failure(now, true), Verdict::kGoesOn);
  EXPECT_TRUE(cycle.down() && cycle.troubled());
  EXPECT_FALSE(cycle.due(now + UdCycle::kPause - Duration(1)));
  EXPECT_TRUE(cycle.due(now + UdCycle::kPause));
  EXPECT_FALSE(cycle.overdue(now + UdCycle::kDrain - Duration(1)));
  EXPECT_TRUE(cycle.overdue(now + UdCycle::kDrain));
  cycle.on_resumed(now + UdCycle::kDrain);
  EXPECT_FALSE(cycle.down() || cycle.due(now + seconds(9)) || cycle.overdue(now + seconds(9)));
}

TEST(UdCycle, ALinkThatIsDownForASecondCostsABoundedNumberOfRestarts) {
  Sent sent;
  EXPECT_EQ(sent.pass(seconds(1), true, true), Verdict::kGoesOn);
  EXPECT_EQ(sent.pass(seconds(1), false, false), Verdict::kGoesOn);
  EXPECT_LE(sent.restarts(), 100);
  EXPECT_GE(sent.restarts(), 90);
  EXPECT_EQ(sent.pass(seconds(5), true, true), Verdict::kGoesOn);
  EXPECT_FALSE(sent.cycle().troubled());
}

TEST(UdCycle, ALinkThatStaysDownIsGivenUpAfterItsPatience) {
  Sent sent;
  EXPECT_EQ(sent.pass(seconds(60), false, false), Verdict::kPort);
  EXPECT_GT(sent.time(), kLinkPatience);
  EXPECT_LT(sent.time(), kLinkPatience + seconds(1));
}

TEST(UdCycle, WhatFailsThoughThePortIsActiveIsGivenUpEarlier) {
  Sent sent;
  EXPECT_EQ(sent.pass(seconds(60), false, true), Verdict::kPair);
  EXPECT_GT(sent.time(), UdCycle::kPatience);
  EXPECT_LT(sent.time(), UdCycle::kPatience + seconds(1));
}

TEST(UdCycle, TheTimeWithALinkDoesNotCountWhileItIsDown) {
  Sent sent;
  EXPECT_EQ(sent.pass(seconds(9), false, true), Verdict::kGoesOn);
  EXPECT_EQ(sent.pass(seconds(1), false, false), Verdict::kGoesOn);
  EXPECT_EQ(sent.pass(seconds(9), false, true), Verdict::kGoesOn);
  EXPECT_EQ(sent.pass(seconds(2), false, true), Verdict::kPair);
}

// A link that comes and goes is not active long enough to be blamed, but is given up all the same.
TEST(UdCycle, AFlappingLinkIsGivenUpAfterThePatienceWithTheLink) {
  Sent sent;
  Verdict verdict = Verdict::kGoesOn;
  for (bool active = false; verdict == Verdict::kGoesOn && sent.time() < seconds(60); active = !active) {
    verdict = sent.pass(milliseconds(500), false, active);
  }
  EXPECT_EQ(verdict, Verdict::kPort);
  EXPECT_GT(sent.time(), kLinkPatience - seconds(1));
  EXPECT_LT(sent.time(), kLinkPatience + seconds(1));
}

TEST(UdCycle, ASuccessBetweenTwoFailuresIsNoProof) {
  Sent sent;
  Verdict verdict = Verdict::kGoesOn;
  while (verdict == Verdict::kGoesOn && sent.time() < seconds(60)) {
    verdict = sent.pass(milliseconds(500), true, true);
    if (verdict == Verdict::kGoesOn) verdict = sent.pass(milliseconds(20), false, true);
  }
  EXPECT_EQ(verdict, Verdict::kPair);
  EXPECT_LT(sent.time(), UdCycle::kPatience + seconds(1));
}

TEST(UdCycle, FailuresWithASecondOfSuccessBetweenThemAreForgotten) {
  Sent sent;
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(sent.pass(seconds(1), false, i % 2 == 0), Verdict::kGoesOn) << i;
    EXPECT_EQ(sent.pass(seconds(2), true, true), Verdict::kGoesOn) << i;
  }
}

TEST(UdCycle, WhoDidNotSendDidNotFail) {
  Sent sent;
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(sent.pass(milliseconds(20), false, i % 2 == 0), Verdict::kGoesOn) << i;
    sent.sleep(UdCycle::kMemory + milliseconds(100));
  }
}

TEST(UdSweep, AnEmptyQueueTellsAtOnce) {
  UdSweep sweep(64);
  const TimePoint now = TimePoint{} + seconds(3);
  EXPECT_EQ(sweep.on_taken(0, now), now);
  EXPECT_EQ(sweep.on_taken(63, now), std::nullopt);
  EXPECT_EQ(sweep.on_taken(0, now + milliseconds(1)), now + milliseconds(1)) << "the later time counts";
  EXPECT_EQ(sweep.on_taken(63, now + milliseconds(2)), std::nullopt) << "counted again";
  EXPECT_EQ(sweep.on_taken(1, now + milliseconds(3)), now + milliseconds(2));
}

// A queue that is full whenever it is looked at: what comes in takes the place of what is taken. Each completion knows
// when it came, so that it shows whether one from before the time that is told is left.
TEST(UdSweep, AQueueThatIsNeverEmptyIsSweptAllTheSame) {
  constexpr std::size_t kMost = 100;
  UdSweep sweep(kMost);
  TimePoint now = TimePoint{} + seconds(3);
  std::deque<TimePoint> queue(kMost, now);
  int swept = 0;
  for (int i = 0; i < 1000; ++i) {
    now += Duration(1000);
    const std::size_t count = 1 + static_cast<std::size_t>(i) % 7;
    for (std::size_t taken = 0; taken < count; ++taken) {
      queue.pop_front();
      queue.push_back(now);
    }
    const auto until = sweep.on_taken(count, now);
    if (!until) continue;
    ++swept;
    EXPECT_LE(*until, queue.front()) << "none from before is left";
    EXPECT_LE(now - *until, Duration(1000) * static_cast<int>(kMost));
  }
  EXPECT_GE(swept, 30) << "4000 were taken, about 100 for each";
}

// The receiver of a failed queue pair that others keep busy: it goes on after its pause, not never.
TEST(UdSweep, ABusyReceiverLetsAFailedQueuePairGoOn) {
  UdCycle cycle(kLinkPatience);
  UdSweep sweep(4096);
  TimePoint now = TimePoint{} + seconds(3);
  EXPECT_EQ(cycle.on_failure(now, true), Verdict::kGoesOn);
  const TimePoint failed = now;
  while (cycle.down() && now - failed < seconds(1)) {
    now += std::chrono::microseconds(10);
    const auto swept = sweep.on_taken(64, now);
    if (swept && cycle.due(*swept)) cycle.on_resumed(now);
  }
  EXPECT_GE(now - failed, UdCycle::kPause);
  EXPECT_LT(now - failed, UdCycle::kPause + milliseconds(2));
}

}  // namespace
}  // namespace clustar::transport::io::verbs
