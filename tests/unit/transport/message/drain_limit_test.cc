#include "transport/message/drain_limit.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace clustar::transport {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr std::uint64_t kFloorBytes = 20'000;

// A sender that always has more, looks every `poll`, and a line that takes what is handed to it at its own speed.
class Sender {
 public:
  struct Seen {
    double busy = 0;         // of what the line could have carried
    std::uint64_t most = 0;  // ahead
  };

  Seen run(std::uint64_t bytes_per_second, Duration poll, Duration how_long) {
    Seen seen;
    double sent = 0;
    const double per_poll = static_cast<double>(bytes_per_second) * std::chrono::duration<double>(poll).count();
    for (const TimePoint end = now_ + how_long; now_ < end; now_ += poll) {
      const double left = std::min(here_, per_poll);
      sent += left;
      here_ -= left;
      limit_.look(static_cast<std::uint64_t>(here_), now_);
      here_ = std::max(here_, static_cast<double>(limit_.bytes()));
      limit_.hold();
      seen.most = std::max(seen.most, static_cast<std::uint64_t>(here_));
    }
    seen.busy = sent / (static_cast<double>(bytes_per_second) * std::chrono::duration<double>(how_long).count());
    return seen;
  }
  const DrainLimit& limit() const { return limit_; }

 private:
  DrainLimit limit_{kFloorBytes};
  TimePoint now_{milliseconds(1)};
  double here_ = 0;
};

TEST(DrainLimit, DoublesWhileTheLineStandsStillForIt) {
  DrainLimit limit(kFloorBytes);
  EXPECT_EQ(limit.bytes(), kFloorBytes);
  limit.look(0, TimePoint(microseconds(1)));
  EXPECT_EQ(limit.bytes(), kFloorBytes) << "it kept nothing from the line";
  limit.hold();
  limit.look(1, TimePoint(microseconds(2)));
  EXPECT_EQ(limit.bytes(), kFloorBytes) << "the line had something to do all the while";
  limit.look(0, TimePoint(microseconds(3)));
  EXPECT_EQ(limit.bytes(), kFloorBytes) << "nothing was held since";
  std::uint64_t expected = kFloorBytes;
  for (int i = 4; i < 20; ++i) {
    limit.hold();
    limit.look(0, TimePoint(microseconds(i)));
    expected = std::min(2 * expected, DrainLimit::kMost);
    EXPECT_EQ(limit.bytes(), expected);
  }
  EXPECT_EQ(limit.bytes(), DrainLimit::kMost);
}

TEST(DrainLimit, ALineThatIsSlowerThanItsSenderHasNoMoreThanTheLeast) {
  Sender sender;
  const auto seen = sender.run(25'000'000, microseconds(10), milliseconds(200));
  EXPECT_GT(seen.busy, 0.98);
  EXPECT_EQ(seen.most, kFloorBytes);
}

// 5 GB/s: 50 times what the limit was made for.
TEST(DrainLimit, ALineOfUnknownSpeedIsFilled) {
  Sender sender;
  sender.run(5'000'000'000, microseconds(100), milliseconds(2));
  const auto seen = sender.run(5'000'000'000, microseconds(100), milliseconds(100));
  EXPECT_GT(seen.busy, 0.99);
  EXPECT_LE(seen.most, 1'100'000u) << "twice what it takes between two looks";
}

// On a busy processor.
TEST(DrainLimit, ASenderThatLooksRarelyFillsItsLine) {
  Sender sender;
  sender.run(25'000'000, milliseconds(4), milliseconds(40));
  const auto seen = sender.run(25'000'000, milliseconds(4), milliseconds(400));
  EXPECT_GT(seen.busy, 0.99);
  EXPECT_LE(seen.most, 200'000u);
}

TEST(DrainLimit, WhatIsTooMuchGoesWithinAFewWindows) {
  Sender sender;
  sender.run(5'000'000'000, microseconds(100), milliseconds(2));
  EXPECT_GT(sender.limit().bytes(), 500'000u);
  // The line is another: it takes 25 kB in a millisecond.
  sender.run(25'000'000, microseconds(10), 2 * DrainLimit::kWindow);
  EXPECT_LE(sender.limit().bytes(), 300'000u) << "what left within a window";
  sender.run(25'000'000, microseconds(10), 4 * DrainLimit::kWindow);
  EXPECT_LE(sender.limit().bytes(), kFloorBytes);
  EXPECT_GT(sender.run(25'000'000, microseconds(10), milliseconds(100)).busy, 0.98);
}

TEST(DrainLimit, APauseTakesNothingBack) {
  Sender sender;
  sender.run(5'000'000'000, microseconds(100), milliseconds(2));
  DrainLimit limit = sender.limit();
  limit.look(1, TimePoint(std::chrono::seconds(1)));
  const std::uint64_t before = limit.bytes();
  for (int i = 0; i < 100; ++i) limit.look(0, TimePoint(std::chrono::seconds(1) + milliseconds(i)));
  EXPECT_EQ(limit.bytes(), before);
}

TEST(DrainLimit, ARestForgetsWhatWasSeenBefore) {
  constexpr TimePoint from{milliseconds(100)};
  DrainLimit limit(kFloorBytes);
  limit.hold();
  limit.look(0, from);
  ASSERT_EQ(limit.bytes(), 2 * kFloorBytes);
  limit.hold();
  limit.rest(from + milliseconds(1));
  limit.look(0, from + milliseconds(2));
  EXPECT_EQ(limit.bytes(), 2 * kFloorBytes) << "nothing was held since";
  limit.rest(from + milliseconds(50));
  limit.look(kFloorBytes, from + milliseconds(51));
  EXPECT_EQ(limit.bytes(), 2 * kFloorBytes) << "one look is no window";
  limit.look(kFloorBytes, from + milliseconds(50) + DrainLimit::kWindow);
  EXPECT_EQ(limit.bytes(), kFloorBytes) << "and what never left within one goes, whatever left before";
}

}  // namespace
}  // namespace clustar::transport
