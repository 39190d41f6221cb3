#include "mlt/core/send/congestion.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "tests/unit/mlt/core/send/closed_loop.h"

namespace clustar::mlt {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(DctcpSwift, FillsTheLinkAndKeepsTheQueueAtItsTarget) {
  ClosedLoop loop({});
  loop.add(DctcpSwift{});
  loop.run(milliseconds(20));
  loop.run(milliseconds(200));
  EXPECT_GT(loop.utilisation(), 0.98);
  EXPECT_LT(loop.mean_queue(), 60) << "50 us at 1 us a packet";
}

TEST(DctcpSwift, MarksKeepTheQueueShorterThanTheDelayTarget) {
  ClosedLoop loop({.mark_above = 20});
  loop.add(DctcpSwift{});
  loop.run(milliseconds(20));
  loop.run(milliseconds(200));
  EXPECT_GT(loop.utilisation(), 0.95);
  EXPECT_LT(loop.mean_queue(), 25);
}

TEST(DctcpSwift, TwoFlowsShareWithinAFactorOfTwoAlsoWhenOneComesLate) {
  for (const std::size_t mark_above : {100000u, 30u}) {
    for (const Duration head_start : {Duration(0), Duration(milliseconds(50))}) {
      ClosedLoop loop({.mark_above = mark_above});
      loop.add(DctcpSwift{});
      loop.run(head_start);
      loop.add(DctcpSwift{});
      loop.run(milliseconds(300));
      loop.run(milliseconds(700));
      EXPECT_GT(loop.utilisation(), 0.95);
      EXPECT_LT(ratio(loop, 0, 1), 2) << "marks above " << mark_above << ", head start " << head_start.count();
      EXPECT_GT(ratio(loop, 0, 1), 0.5) << "marks above " << mark_above << ", head start " << head_start.count();
    }
  }
}

TEST(DctcpSwift, WhoPushesHarderGetsMore) {
  for (const std::size_t mark_above : {100000u, 30u}) {
    ClosedLoop loop({.mark_above = mark_above});
    DctcpSwift hard, soft;
    hard.set_push(1.5);
    soft.set_push(0.5);
    loop.add(hard);
    loop.add(soft);
    loop.run(milliseconds(300));
    loop.run(milliseconds(700));
    EXPECT_GT(loop.utilisation(), 0.95);
    EXPECT_GT(ratio(loop, 0, 1), 1.5) << "marks above " << mark_above;
    EXPECT_LT(ratio(loop, 0, 1), 6) << "marks above " << mark_above;
  }
}

TEST(DctcpSwift, ManyFlowsInAnIncastDoNotCollapse) {
  ClosedLoop loop({.buffer = 70});
  for (int i = 0; i < 15; ++i) loop.add(DctcpSwift{});
  loop.run(milliseconds(100));
  loop.run(milliseconds(300));
  EXPECT_GT(loop.utilisation(), 0.9);
  std::uint64_t least = loop.delivered(0);
  std::uint64_t most = least;
  for (std::size_t i = 1; i < 15; ++i) {
    least = std::min(least, loop.delivered(i));
    most = std::max(most, loop.delivered(i));
  }
  EXPECT_LT(most, 3 * least);
}

TEST(DctcpSwift, RandomLossCostsOnlyWhatIsLost) {
  for (const std::size_t mark_above : {100000u, 30u}) {
    ClosedLoop loop({.mark_above = mark_above});
    loop.add(DctcpSwift{});
    loop.run(milliseconds(20));
    loop.run(milliseconds(500));
    const double clean = loop.utilisation();
    loop.set_loss(1.0 / 256);
    loop.run(milliseconds(500));
    EXPECT_GT(loop.utilisation(), clean - 1.0 / 256 - 0.003) << "marks above " << mark_above;
  }
}

TEST(DctcpSwift, FollowsTheLinkDown) {
  ClosedLoop loop({});
  loop.add(DctcpSwift{});
  loop.run(milliseconds(100));
  const std::uint64_t before = loop.congestion(0).window_bytes();
  loop.set_slot(microseconds(10));
  loop.run(milliseconds(200));
  EXPECT_LT(loop.congestion(0).window_bytes(), before / 4);
  loop.run(milliseconds(200));
  EXPECT_GT(loop.utilisation(), 0.95);
  EXPECT_LT(loop.mean_queue(), 20);
}

// Single round trips by hand: what is acknowledged, marked and lost in each; 100 us without queues.
class Steps {
 public:
  explicit Steps(const Congestion& start) : congestion(start) {
    congestion.on_ack(0, 0, microseconds(100), microseconds(100), now_);  // starts the first round trip
  }
  std::uint64_t round(std::uint64_t acked, std::uint64_t marked, Duration rtt, std::uint64_t lost = 0) {
    now_ += microseconds(150);  // later than the end of the round trip, if it was shorter
    if (lost > 0) congestion.on_loss(lost, now_);
    if (acked > 0) congestion.on_ack(acked, marked, rtt, microseconds(100), now_);
    return congestion.window_bytes();
  }
  // A cut, and the drain that follows the first one.
  std::uint64_t first_cut(std::uint64_t acked, std::uint64_t marked, Duration rtt, std::uint64_t lost = 0) {
    round(acked, marked, rtt, lost);
    for (int i = 0; i < 6; ++i) round(1000, 0, microseconds(100));  // too little to grow by
    return congestion.window_bytes();
  }
  Congestion congestion;

 private:
  TimePoint now_{};
};

DctcpSwift::Options large() {
  DctcpSwift::Options options;
  options.initial = 1'000'000;
  options.scaling_range = Duration::zero();
  return options;
}

TEST(DctcpSwift, DoublesInStartUpAndGrowsBySegmentsAfterIt) {
  Steps steps{DctcpSwift(large())};
  EXPECT_EQ(steps.round(1'000'000, 0, microseconds(120)), 2'000'000u);
  EXPECT_EQ(steps.round(2'000'000, 0, microseconds(120)), 4'000'000u);
  EXPECT_EQ(steps.round(4'000'000, 0, microseconds(200)), 800'000u)
      << "a fifth less, of which a drain leaves a quarter";
  EXPECT_EQ(steps.round(800'000, 0, microseconds(200)), 800'000u);
  EXPECT_EQ(steps.round(800'000, 0, microseconds(100)), 3'200'000u);
  for (int i = 0; i < 10; ++i) steps.round(3'000'000, 0, microseconds(120));
  EXPECT_EQ(steps.congestion.window_bytes(), 3'200'000u + 10 * kSegment);
  for (int i = 0; i < 10; ++i) steps.round(1'000, 0, microseconds(120));
  EXPECT_EQ(steps.congestion.window_bytes(), 3'200'000u + 10 * kSegment) << "a window that is not used does not grow";
}

TEST(DctcpSwift, CutsByMarksDelayAndSevereLoss) {
  const auto cut = [](std::uint64_t acked, std::uint64_t marked, Duration rtt, std::uint64_t lost = 0) {
    Steps steps{DctcpSwift(large())};
    return static_cast<double>(steps.first_cut(acked, marked, rtt, lost));
  };
  EXPECT_NEAR(cut(1'000'000, 1'000'000, microseconds(100)), 500'000, 10) << "alpha starts at 1";
  EXPECT_NEAR(cut(1'000'000, 0, microseconds(200)), 1'000'000 * (1 - 0.8 * 50 / 200), 10) << "the target is 150 us";
  EXPECT_NEAR(cut(1'000'000, 0, milliseconds(1)), 500'000, 10) << "never more than half";
  EXPECT_NEAR(cut(700'000, 0, microseconds(155), 300'000), 700'000, 10) << "and delay: the larger of the two";
  EXPECT_NEAR(cut(900'000, 0, microseconds(155), 100'000), 900'000, 10) << "little loss counts with delay only";
  Steps alone{DctcpSwift(large())};
  EXPECT_GT(alone.round(850'000, 0, microseconds(100), 150'000), 1'000'000u) << "15 % loss without delay is no reason";
}

TEST(DctcpSwift, WhatABurstOfErrorsTookComesBackByQuarters) {
  Steps steps{DctcpSwift(large())};
  EXPECT_EQ(steps.round(700'000, 0, microseconds(100), 300'000), 700'000u);
  EXPECT_EQ(steps.round(400'000, 0, microseconds(100), 600'000), 350'000u);
  for (int i = 0; i < 60; ++i) {
    EXPECT_EQ(steps.round(300'000, 0, microseconds(100), 700'000), 250'000u) << "a quarter";
  }
  EXPECT_EQ(steps.round(250'000, 0, microseconds(100)), 500'000u);
  EXPECT_EQ(steps.round(500'000, 0, microseconds(100)), 750'000u);
  EXPECT_EQ(steps.round(500'000, 0, microseconds(100)), 1'000'000u);
  EXPECT_EQ(steps.round(1'000'000, 0, microseconds(100)), 1'000'000u + kSegment) << "and then as always";
  for (int i = 0; i < 70; ++i) steps.round(300'000, 0, microseconds(100), 700'000);
  EXPECT_LT(steps.congestion.window_bytes(), 10'000u) << "what lasts is no burst";
}

TEST(DctcpSwift, AShallowBufferWithoutMarksIsNoBurstOfErrors) {
  for (const std::size_t buffer : {5, 20}) {
    Bottleneck link;
    link.buffer = buffer;
    ClosedLoop loop(link);
    for (int i = 0; i < 4; ++i) loop.add(DctcpSwift(large()));
    loop.run(milliseconds(50));
    loop.run(milliseconds(100));
    EXPECT_GT(loop.utilisation(), 0.8) << buffer;
    std::uint64_t windows = 0;
    for (std::size_t flow = 0; flow < 4; ++flow) windows += loop.congestion(flow).window_bytes();
    EXPECT_LT(windows, 2u * 100 * kSegment) << "twice the pipe, " << buffer;
  }
}

TEST(DctcpSwift, ADeadNetworkLeavesOneSegment) {
  Steps steps{DctcpSwift(large())};
  for (int i = 0; i < 400; ++i) steps.round(0, 0, microseconds(100), 100'000);
  EXPECT_EQ(steps.congestion.window_bytes(), kSegment);
}

TEST(DctcpSwift, CutsAtMostOncePerRoundTrip) {
  Steps steps{DctcpSwift(large())};
  steps.first_cut(1'000'000, 1'000'000, microseconds(100));
  const std::uint64_t before = steps.congestion.window_bytes();
  Congestion congestion = steps.congestion;
  for (int i = 0; i < 90; ++i) {  // 90 us of marks, at a round trip of 100 us
    congestion.on_ack(1000, 1000, microseconds(100), microseconds(100), TimePoint(milliseconds(3) + microseconds(i)));
  }
  EXPECT_EQ(congestion.window_bytes(), before);
  for (int i = 90; i < 190; ++i) {
    congestion.on_ack(1000, 1000, microseconds(100), microseconds(100), TimePoint(milliseconds(3) + microseconds(i)));
  }
  EXPECT_LT(congestion.window_bytes(), before * 7 / 10);
  EXPECT_GE(congestion.window_bytes(), before * 5 / 10) << "once";
}

TEST(DctcpSwift, StandsAnySample) {
  Rng rng(7);
  Congestion congestion;
  TimePoint now{};
  for (int i = 0; i < 100'000; ++i) {
    const auto any = [&] { return rng.next() >> rng.below(64); };
    if (rng.chance(0.5)) {
      congestion.on_ack(any(), any(), Duration(static_cast<Duration::rep>(any())),
                        Duration(static_cast<Duration::rep>(any())), now);
    } else {
      congestion.on_loss(any(), now);
    }
    now += Duration(static_cast<Duration::rep>(rng.below(1'000'000'000)));
    ASSERT_GE(congestion.window_bytes(), kSegment);
    ASSERT_LE(congestion.window_bytes(), 64u << 20);
    ASSERT_GE(congestion.rate_bytes_per_s(Duration(static_cast<Duration::rep>(any()))), 1u);
  }
}

TEST(Dctcp, MarksKeepTheQueueAroundTheThreshold) {
  ClosedLoop loop({.mark_above = 30});
  loop.add(Dctcp{});
  loop.add(Dctcp{});
  loop.run(milliseconds(100));
  loop.run(milliseconds(500));
  EXPECT_GT(loop.utilisation(), 0.95);
  EXPECT_LT(loop.mean_queue(), 40);
  EXPECT_LT(ratio(loop, 0, 1), 2);
  EXPECT_GT(ratio(loop, 0, 1), 0.5);
}

TEST(Dctcp, RandomLossHurtsItUnlikeOurs) {
  ClosedLoop loop({.mark_above = 30, .random_loss = 1.0 / 256});
  loop.add(Dctcp{});
  loop.run(milliseconds(100));
  loop.run(milliseconds(500));
  EXPECT_LT(loop.utilisation(), 0.8);
}

TEST(Dctcp, SharesALinkThatMarksWithDctcpSwift) {
  DctcpSwift::Options options;
  options.queue_target = microseconds(200);  // above the marking threshold: marks decide for both
  ClosedLoop loop({.mark_above = 30});
  loop.add(DctcpSwift(options));
  loop.add(Dctcp{});
  loop.run(milliseconds(200));
  loop.run(milliseconds(800));
  EXPECT_LT(ratio(loop, 0, 1), 2);
  EXPECT_GT(ratio(loop, 0, 1), 0.5);
}

// A buffer without marks that is far deeper than the target, and a flow that fills it (Dctcp without marks is Reno).
TEST(DctcpSwift, GetsItsShareBesideAFlowThatFillsTheQueue) {
  for (const bool first : {true, false}) {
    ClosedLoop loop({.base = microseconds(100), .buffer = 1000});
    if (first) loop.add(DctcpSwift());
    loop.add(Dctcp());
    if (!first) {
      loop.run(seconds(1));
      loop.add(DctcpSwift());
    }
    loop.run(seconds(4));
    loop.run(seconds(8));
    const double share =
        static_cast<double>(loop.delivered(first ? 0 : 1)) / static_cast<double>(loop.delivered(0) + loop.delivered(1));
    EXPECT_GT(share, 0.25) << first;
    EXPECT_LT(share, 0.75) << first;
  }
}

// And when the other one ends, the queue is short again.
TEST(DctcpSwift, KeepsToItsTargetAgainWhenTheOtherHasEnded) {
  ClosedLoop loop({.base = microseconds(100), .buffer = 2000});
  loop.add(DctcpSwift());
  loop.add(Dctcp());
  loop.run(seconds(2));
  loop.remove_last();
  loop.run(seconds(1));
  loop.run(seconds(1));
  EXPECT_GT(loop.utilisation(), 0.9);
  EXPECT_LT(loop.mean_queue(), 200);
}

// Neither do several that compete hold each other there.
TEST(DctcpSwift, SeveralKeepToTheirTargetAgainWhenTheOtherHasEnded) {
  for (const int flows : {2, 4}) {
    ClosedLoop loop({.base = microseconds(100), .buffer = 1000});
    for (int i = 0; i < flows; ++i) {
      loop.add(DctcpSwift());
      loop.run(milliseconds(1));
    }
    loop.add(Dctcp());
    loop.run(seconds(1));
    loop.remove_last();
    loop.run(seconds(4));
    loop.run(milliseconds(500));
    EXPECT_GT(loop.utilisation(), 0.9) << flows;
    EXPECT_LT(loop.mean_queue(), 200) << flows;
  }
}

// Each holds a part of the queue that the others cannot shorten, but nobody is a stranger.
TEST(DctcpSwift, ManyOfItsKindDoNotCompete) {
  for (const Duration base : {microseconds(10), microseconds(100)}) {
    for (const int flows : {2, 8, 30}) {
      ClosedLoop loop({.base = base, .buffer = 1000});
      for (int i = 0; i < flows; ++i) {
        loop.add(DctcpSwift());
        loop.run(microseconds(700));
      }
      loop.run(milliseconds(300));
      loop.run(milliseconds(300));
      EXPECT_GT(loop.utilisation(), 0.98) << flows;
      EXPECT_LT(loop.mean_queue(), 330) << flows;
    }
  }
}

// Those that begin at next to nothing have nothing to give way with, and their number makes the queue.
TEST(DctcpSwift, ManyThatBeginSmallDoNotCompete) {
  for (const std::uint64_t segments : {1, 2, 8}) {
    for (const int flows : {60, 120}) {
      DctcpSwift::Options options;
      options.initial = segments * kSegment;
      ClosedLoop loop({.base = microseconds(10), .buffer = 2000});
      for (int i = 0; i < flows; ++i) loop.add(DctcpSwift(options));
      loop.run(milliseconds(300));
      loop.run(milliseconds(300));
      EXPECT_GT(loop.utilisation(), 0.98) << flows;
      EXPECT_LT(loop.mean_queue(), 300) << flows << " flows that began at " << segments;
    }
  }
}

TEST(Congestion, RateIsAQuarterAboveTheWindowPerRoundTrip) {
  DctcpSwift::Options options;
  options.initial = 100'000;
  EXPECT_EQ(Congestion(DctcpSwift(options)).rate_bytes_per_s(milliseconds(1)), 125'000'000u);
  EXPECT_GE(Congestion(DctcpSwift(options)).rate_bytes_per_s(Duration::zero()), 1u);
  Congestion fixed{FixedRate({.window = 5000, .rate = 777})};
  fixed.on_loss(1'000'000, TimePoint(seconds(1)));
  EXPECT_EQ(fixed.window_bytes(), 5000u);
  EXPECT_EQ(fixed.rate_bytes_per_s(seconds(9)), 777u);
}

TEST(Congestion, RefusesBadOptions) {
  const auto refuses = [](auto change) {
    DctcpSwift::Options options;
    change(options);
    EXPECT_THROW(DctcpSwift{options}, std::invalid_argument);
  };
  refuses([](auto& o) { o.segment = 63; });
  refuses([](auto& o) { o.initial = 100; });
  refuses([](auto& o) { o.maximum = 1000; });
  refuses([](auto& o) { o.maximum = 2ull << 30; });
  refuses([](auto& o) { o.mark_gain = 0; });
  refuses([](auto& o) { o.queue_target = Duration::zero(); });
  refuses([](auto& o) { o.scaling_range = -seconds(1); });
  refuses([](auto& o) { o.beta = 1.1; });
  refuses([](auto& o) { o.max_cut = 1; });
  refuses([](auto& o) { o.drain_epochs = 0; });
  refuses([](auto& o) { o.severe_loss = -0.1; });
  EXPECT_THROW(Dctcp({.segment = 0}), std::invalid_argument);
  EXPECT_THROW(FixedRate({.window = 0}), std::invalid_argument);
  EXPECT_THROW(FixedRate({.rate = 0}), std::invalid_argument);
}

}  // namespace
}  // namespace clustar::mlt
