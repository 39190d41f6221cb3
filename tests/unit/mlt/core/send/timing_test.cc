#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "mlt/core/send/pacer.h"
#include "mlt/core/send/rtt.h"
#include "transport/base/rng.h"

namespace clustar::mlt {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

TimePoint at(Duration since) { return TimePoint(since); }

TEST(RttEstimator, StartsFromTheOption) {
  const RttEstimator rtt;
  EXPECT_FALSE(rtt.has_sample());
  EXPECT_EQ(rtt.srtt(), milliseconds(1));
  EXPECT_EQ(rtt.probe_timeout(), milliseconds(3)) << "1 + 4 * 0.5 ms";
}

TEST(RttEstimator, FollowsRfc6298) {
  RttEstimator rtt;
  rtt.sample(microseconds(800), at(microseconds(0)));
  EXPECT_EQ(rtt.srtt(), microseconds(800));
  EXPECT_EQ(rtt.rttvar(), microseconds(400));
  EXPECT_EQ(rtt.probe_timeout(), microseconds(2400));
  rtt.sample(microseconds(1600), at(microseconds(1)));
  EXPECT_EQ(rtt.rttvar(), microseconds(500)) << "3/4 * 400 + 1/4 * 800";
  EXPECT_EQ(rtt.srtt(), microseconds(900)) << "7/8 * 800 + 1/8 * 1600";
}

TEST(RttEstimator, TimeoutStaysBetweenFloorAndCap) {
  RttEstimator rtt;
  for (int i = 0; i < 200; ++i) rtt.sample(microseconds(50), at(microseconds(i)));
  EXPECT_EQ(rtt.probe_timeout(), microseconds(500));
  for (int i = 0; i < 200; ++i) rtt.sample(seconds(1), at(milliseconds(1 + i)));
  EXPECT_EQ(rtt.probe_timeout(), milliseconds(100));
}

TEST(RttEstimator, IgnoresSamplesThatCannotBe) {
  RttEstimator rtt;
  rtt.sample(Duration::zero(), at(seconds(0)));
  rtt.sample(-seconds(1), at(seconds(0)));
  rtt.sample(seconds(11), at(seconds(0)));
  rtt.sample(Duration::max(), at(seconds(0)));
  EXPECT_FALSE(rtt.has_sample());
}

TEST(RttEstimator, MinimumIsForgottenAfterItsWindow) {
  RttEstimator rtt({.min_window = seconds(1)});
  rtt.sample(microseconds(100), at(seconds(0)));
  for (int i = 1; i <= 100; ++i) {
    rtt.sample(microseconds(300 + i), at(milliseconds(10 * i)));
    ASSERT_EQ(rtt.min_rtt(), microseconds(100));
  }
  for (int i = 101; i <= 400; ++i) rtt.sample(microseconds(300 + i % 50), at(milliseconds(10 * i)));
  EXPECT_GE(rtt.min_rtt(), microseconds(300));
  EXPECT_LE(rtt.min_rtt(), microseconds(310));
  rtt.sample(microseconds(80), at(seconds(5)));
  EXPECT_EQ(rtt.min_rtt(), microseconds(80)) << "a new minimum counts at once";
  rtt.sample(microseconds(900), at(seconds(60)));
  EXPECT_EQ(rtt.min_rtt(), microseconds(900)) << "all candidates are too old";
}

TEST(RttEstimator, MinimumIsNeverBelowTheWindowsAndNeverFarAbove) {
  Rng rng(4);
  RttEstimator rtt({.min_window = milliseconds(100)});
  std::vector<Duration> samples;
  for (int i = 0; i < 5000; ++i) {
    samples.push_back(microseconds(100 + rng.below(900)));
    rtt.sample(samples.back(), at(milliseconds(i)));
    const auto window = samples.end() - std::min<std::ptrdiff_t>(i + 1, 101);
    ASSERT_GE(rtt.min_rtt(), *std::min_element(window, samples.end()));
    const auto half = samples.end() - std::min<std::ptrdiff_t>(i + 1, 20);
    ASSERT_LE(rtt.min_rtt(), *std::min_element(half, samples.end()));
  }
}

TEST(RttEstimator, PatienceRemembersTheQueueOfLate) {
  RttEstimator rtt({.peak_window = milliseconds(100)});
  EXPECT_EQ(rtt.patience(), microseconds(1250)) << "no sample yet";
  rtt.sample(milliseconds(8), at(milliseconds(1)));
  for (int i = 0; i < 50; ++i) rtt.sample(microseconds(100), at(milliseconds(2)));
  EXPECT_LT(rtt.srtt(), microseconds(150));
  EXPECT_EQ(rtt.patience(), milliseconds(10));
  EXPECT_EQ(rtt.probe_timeout(), milliseconds(10)) << "or the probe would find all of the queue missing";
  rtt.sample(microseconds(100), at(milliseconds(102)));
  EXPECT_EQ(rtt.patience(), milliseconds(10)) << "the span before counts, too";
  rtt.sample(microseconds(100), at(milliseconds(203)));
  EXPECT_LT(rtt.patience(), microseconds(200));
  rtt.sample(milliseconds(8), at(milliseconds(204)));
  rtt.sample(microseconds(100), at(seconds(5)));
  EXPECT_LT(rtt.patience(), milliseconds(2)) << "after a pause neither span is recent";
}

TEST(RttEstimator, APauseOfAProcessDoesNotMakeItWaitAsLongAgain) {
  RttEstimator rtt({.cap = milliseconds(100)});
  for (int i = 0; i < 50; ++i) rtt.sample(microseconds(100), at(milliseconds(1)));
  rtt.sample(seconds(3), at(milliseconds(2)));
  for (int i = 0; i < 50; ++i) rtt.sample(microseconds(100), at(milliseconds(3)));
  EXPECT_EQ(rtt.patience(), rtt.srtt() < milliseconds(100) ? milliseconds(125) : rtt.srtt() * 5 / 4);
  for (int i = 0; i < 50; ++i) rtt.sample(milliseconds(300), at(milliseconds(4)));
  EXPECT_GT(rtt.patience(), milliseconds(300)) << "a line that is really so slow";
}

TEST(RttEstimator, RefusesBadOptions) {
  EXPECT_THROW(RttEstimator({.initial = Duration::zero()}), std::invalid_argument);
  EXPECT_THROW(RttEstimator({.floor = seconds(1)}), std::invalid_argument) << "above the cap";
  EXPECT_THROW(RttEstimator({.cap = seconds(11)}), std::invalid_argument);
  EXPECT_THROW(RttEstimator({.min_window = Duration::zero()}), std::invalid_argument);
  EXPECT_THROW(RttEstimator({.peak_window = Duration::zero()}), std::invalid_argument);
}

// Rates that no number of ns divides: after an hour not one ns is off.
TEST(Pacer, DoesNotDriftInAnHour) {
  for (const std::uint64_t rate : {1'000'003u, 2'999'999u}) {
    const std::uint32_t packet = 1448;
    Pacer pacer(rate, 0, at(seconds(0)));
    TimePoint now = at(seconds(0));
    std::uint64_t packets = 0;
    while (now < at(seconds(3600))) {
      pacer.on_sent(packet, now);
      ++packets;
      now = pacer.next_send(now);
    }
    const auto exact = static_cast<unsigned __int128>(packets) * packet * 1'000'000'000;
    const auto expected = static_cast<std::int64_t>((exact + rate - 1) / rate);
    EXPECT_EQ(now.time_since_epoch().count(), expected) << packets;
  }
}

TEST(Pacer, IdleTimeSavesUpNoMoreThanTheBurst) {
  Pacer pacer(1'000'000, 3000, at(seconds(0)));
  TimePoint now = at(seconds(100));
  int sent = 0;
  while (pacer.next_send(now) == now) {
    pacer.on_sent(1000, now);
    ++sent;
  }
  EXPECT_EQ(sent, 4) << "the burst, and the packet that makes the debt";
  EXPECT_EQ(pacer.next_send(now), now + milliseconds(1));
}

TEST(Pacer, NeverExceedsRateAndBurstInAnyInterval) {
  Rng rng(5);
  const std::uint64_t rate = 12'345'678;
  const std::uint32_t burst = 16 * 1024;
  Pacer pacer(rate, burst, at(seconds(0)));
  TimePoint now = at(seconds(0));
  // A bucket of its own: level never above burst + one packet.
  double level = 0;
  TimePoint last = now;
  for (int i = 0; i < 100'000; ++i) {
    now = std::max(now, pacer.next_send(now));
    if (rng.chance(0.01)) now += microseconds(rng.below(5000));
    const auto size = static_cast<std::uint32_t>(1 + rng.below(1500));
    level = std::max(0.0, level - static_cast<double>((now - last).count()) * rate / 1e9) + size;
    last = now;
    pacer.on_sent(size, now);
    ASSERT_LE(level, burst + 1500 + 1);
  }
}

TEST(Pacer, ARateChangeAppliesToTheRestOfTheDebt) {
  Pacer pacer(1'000'000, 0, at(seconds(0)));
  pacer.on_sent(10'000, at(seconds(0)));
  EXPECT_EQ(pacer.next_send(at(seconds(0))), at(milliseconds(10)));
  pacer.set_rate(4'000'000, at(milliseconds(2)));
  EXPECT_EQ(pacer.next_send(at(milliseconds(2))), at(milliseconds(4))) << "8,000 B left";
  pacer.set_rate(0, at(milliseconds(2)));
  EXPECT_EQ(pacer.rate(), 1u);
  EXPECT_EQ(pacer.next_send(at(milliseconds(2))), at(milliseconds(2) + seconds(8000)));
}

TEST(Pacer, StandsExtremes) {
  Pacer pacer(~std::uint64_t{0}, 0xffffffff, at(seconds(0)));
  pacer.on_sent(0xffffffff, at(seconds(0)));
  const TimePoint late = TimePoint::max() - seconds(1);
  EXPECT_EQ(pacer.next_send(late), late);
  pacer.set_rate(1, late);
  for (int i = 0; i < 10; ++i) pacer.on_sent(0xffffffff, late);
  EXPECT_EQ(pacer.next_send(late), TimePoint::max());
}

}  // namespace
}  // namespace clustar::mlt
