// DctcpSwift on paths of many milliseconds, with the driver's options: 200 Mbit/s, a buffer of 1 MB.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>

#include "mlt/core/send/congestion.h"
#include "tests/unit/mlt/core/send/closed_loop.h"
#include "tests/unit/mlt/core/send/cubic_rival.h"

namespace clustar::mlt {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::size_t kBuffer = 690;  // packets: 1 MB, 40 ms

DctcpSwift driver_like(Duration base) {
  DctcpSwift::Options options;
  options.queue_target = milliseconds(1);
  options.scaling_range = milliseconds(5);
  options.initial = 32 * 1024;
  options.maximum = 256u << 20;
  DctcpSwift controller(options);
  controller.set_base_rtt(base);
  return controller;
}

Bottleneck path(Duration base, double random_loss = 0) {
  return {.slot = std::chrono::nanoseconds(57'920), .base = base, .buffer = kBuffer, .random_loss = random_loss};
}

TEST(DctcpSwiftFar, OneFlowFillsThePathAndLeavesTheQueueShort) {
  for (const Duration base : {milliseconds(2), milliseconds(8), milliseconds(40), milliseconds(100)}) {
    for (const double loss : {0.0, 1e-3, 1e-2}) {
      ClosedLoop loop(path(base, loss));
      loop.add(driver_like(base));
      loop.run(25 * base + milliseconds(100));  // nobody paces the first windows here
      loop.run(seconds(10));
      EXPECT_GT(loop.utilisation(), (1 - loss) * 0.97) << base.count() << " ns, loss " << loss;
      EXPECT_LT(loop.mean_queue(), kBuffer / 4.0) << base.count() << " ns, loss " << loss;
    }
  }
}

TEST(DctcpSwiftFar, FlowsOfItsKindShareAlsoWhenOneComesLate) {
  for (const Duration base : {milliseconds(8), milliseconds(40), milliseconds(100)}) {
    for (const Duration head_start : {Duration(0), Duration(seconds(5))}) {
      ClosedLoop loop(path(base));
      loop.add(driver_like(base));
      loop.run(head_start);
      loop.add(driver_like(base));
      loop.run(seconds(20));
      loop.run(seconds(30));
      EXPECT_GT(loop.utilisation(), 0.95) << base.count();
      EXPECT_LT(ratio(loop, 0, 1), 2) << base.count() << ", head start " << head_start.count();
      EXPECT_GT(ratio(loop, 0, 1), 0.5) << base.count() << ", head start " << head_start.count();
      EXPECT_LT(loop.mean_queue(), kBuffer / 4.0) << base.count() << ", head start " << head_start.count();
    }
  }
}

// Dctcp without marks halves at losses and grows by a segment, as Reno.
TEST(DctcpSwiftFar, BesideRenoEachHasAPartOfItsShare) {
  for (const Duration base : {milliseconds(8), milliseconds(40)}) {
    for (const bool first : {true, false}) {
      ClosedLoop loop(path(base));
      if (first) loop.add(driver_like(base));
      loop.run(first ? Duration(seconds(5)) : Duration(0));
      loop.add(Dctcp());
      if (!first) loop.run(seconds(5));
      if (!first) loop.add(driver_like(base));
      loop.run(seconds(30));
      loop.run(seconds(60));
      const double all = static_cast<double>(loop.delivered(0) + loop.delivered(1));
      for (const std::size_t flow : {0, 1}) {
        EXPECT_GT(static_cast<double>(loop.delivered(flow)) / (all / 2), 0.3)
            << base.count() << ", ours first " << first << ", flow " << flow;
      }
      EXPECT_GT(loop.utilisation(), 0.9) << base.count();
    }
  }
}

// While one queue holds 40 ms, 20 s are all that CUBIC has to come back from two losses at 40 ms: a flow that comes 200
// ms late finds it taken, CUBIC beside CUBIC as well.
TEST(DctcpSwiftFar, BesideCubicEachHasAPartOfItsShare) {
  for (const Duration base : {milliseconds(8), milliseconds(40)}) {
    for (const bool first : {true, false}) {
      for (const Duration head_start : {milliseconds(0), milliseconds(70), milliseconds(140)}) {
        ClosedLoop loop(path(base));
        if (first) loop.add(driver_like(base));
        if (!first) loop.add(std::make_unique<CubicRival>());
        loop.run(head_start);
        if (first) loop.add(std::make_unique<CubicRival>());
        if (!first) loop.add(driver_like(base));
        loop.run(seconds(20));
        const double all = static_cast<double>(loop.delivered(0) + loop.delivered(1));
        for (const std::size_t flow : {0, 1}) {
          EXPECT_GT(static_cast<double>(loop.delivered(flow)) / (all / 2), 0.3)
              << base.count() << ", ours first " << first << ", head start " << head_start.count() << ", flow " << flow;
        }
        EXPECT_GT(loop.utilisation(), 0.9) << base.count();
      }
    }
  }
}

TEST(DctcpSwiftFar, WhoCompetedFillsThePathSoonAfterTheOtherLeft) {
  for (const Duration base : {milliseconds(8), milliseconds(40), milliseconds(100)}) {
    ClosedLoop loop(path(base));
    loop.add(driver_like(base));
    loop.add(Dctcp());
    loop.run(seconds(10));
    loop.set_slot(std::chrono::nanoseconds(579'200));  // 20 Mbit/s: both windows become small
    loop.run(seconds(30));
    loop.remove_last();
    loop.set_slot(path(base).slot);
    loop.run(30 * base + seconds(1));
    loop.run(seconds(1));
    EXPECT_GT(loop.utilisation(), 0.9) << base.count();
  }
}

}  // namespace
}  // namespace clustar::mlt
