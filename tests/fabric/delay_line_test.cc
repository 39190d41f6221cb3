// The queue of packets under way on a cable: simulated time, no kernel.
#include "bench/fabric/delay/delay_line.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <random>
#include <span>
#include <vector>

namespace clustar::bench::fabric {
namespace {

std::vector<std::byte> packet(std::size_t bytes, int content) { return std::vector(bytes, std::byte(content)); }

// Takes what is due; the first byte of each.
std::vector<int> take(DelayLine& line, std::int64_t now) {
  std::vector<int> taken;
  std::array<std::span<const std::byte>, 4> due;
  while (const std::size_t n = line.due(now, due)) {
    for (std::size_t i = 0; i < n; ++i) taken.push_back(static_cast<int>(due[i].front()));
    line.pop(n);
  }
  return taken;
}

TEST(DelayLine, EachPacketLeavesTheDelayLaterAndInOrder) {
  DelayLine line(50'000, 10'000);
  EXPECT_FALSE(line.next_due());
  ASSERT_TRUE(line.push(packet(100, 1), 0));
  ASSERT_TRUE(line.push(packet(100, 2), 1'000));
  EXPECT_EQ(line.next_due(), 50'000);
  EXPECT_TRUE(take(line, 49'999).empty());
  EXPECT_EQ(take(line, 50'000), std::vector<int>{1});
  EXPECT_EQ(line.next_due(), 51'000);
  EXPECT_EQ(take(line, 60'000), std::vector<int>{2});
  EXPECT_EQ(line.waiting_packets(), 0U);
}

TEST(DelayLine, AnEarlierTimeStampDoesNotOvertake) {
  DelayLine line(50'000, 10'000);
  line.push(packet(100, 1), 10'000);
  line.push(packet(100, 2), 5'000);
  EXPECT_TRUE(take(line, 59'999).empty());
  EXPECT_EQ(take(line, 60'000), (std::vector<int>{1, 2}));
}

TEST(DelayLine, WhatFindsNoRoomIsCounted) {
  DelayLine line(1'000, 1'000);
  EXPECT_TRUE(line.push(packet(600, 1), 0));
  EXPECT_TRUE(line.push(packet(400, 2), 0));
  EXPECT_FALSE(line.push(packet(1, 3), 0));
  EXPECT_FALSE(line.push({}, 0));
  EXPECT_EQ(line.dropped(), 2U);
  EXPECT_EQ(take(line, 1'000), (std::vector<int>{1, 2}));
  EXPECT_FALSE(line.push(packet(1'001, 4), 0)) << "larger than all the room";
  EXPECT_TRUE(line.push(packet(1'000, 5), 0));
}

TEST(DelayLine, SmallPacketsAreBoundedByTheirNumber) {
  DelayLine line(1'000, 640);
  int held = 0;
  while (line.push(packet(1, 1), 0)) ++held;
  EXPECT_EQ(held, 11);
}

// Against a plain queue: whatever sizes come and go, contents and order stay.
TEST(DelayLine, KeepsContentsWhereverTheRingWraps) {
  std::mt19937 random(7);
  DelayLine line(1'000, 5'000);
  std::deque<std::vector<std::byte>> model;
  std::uint64_t taken = 0;
  for (std::int64_t now = 0; now < 200'000; now += 10) {
    const auto one = packet(1 + random() % 1'500, static_cast<int>(random() % 256));
    if (line.push(one, now)) model.push_back(one);
    std::array<std::span<const std::byte>, 3> due;
    const std::size_t n = random() % 3 == 0 ? line.due(now, due) : 0;
    for (std::size_t i = 0; i < n; ++i) {
      ASSERT_TRUE(std::equal(due[i].begin(), due[i].end(), model.front().begin(), model.front().end()));
      model.pop_front();
    }
    line.pop(n);
    taken += n;
    ASSERT_EQ(line.waiting_packets(), model.size());
  }
  EXPECT_GT(taken, 500U);
  EXPECT_GT(line.dropped(), 500U);
}

// What it may take and what it takes are two things: a cable that hardly anything is on costs 64 KiB.
TEST(DelayLine, MemoryGrowsWithWhatIsUnderWayAndKeepsIt) {
  constexpr std::size_t kCapacity = 1'000'000;
  DelayLine line(1'000, kCapacity);
  for (int i = 0; i < 1000; ++i) {
    ASSERT_TRUE(line.push(packet(1'000, i % 100), i));
    if (i == 40) {
      EXPECT_EQ(line.memory_bytes(), 64U * 1024);
    }
  }
  EXPECT_EQ(line.memory_bytes(), kCapacity);
  EXPECT_FALSE(line.push(packet(1, 1), 1'000)) << "never beyond the capacity";
  const auto all = take(line, 10'000);
  ASSERT_EQ(all.size(), 1000U);
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(all[static_cast<std::size_t>(i)], i % 100);
}

TEST(DelayLine, GrowsInTheMiddleOfARing) {
  DelayLine line(1'000, 200'000);
  for (int i = 0; i < 60; ++i) ASSERT_TRUE(line.push(packet(1'000, i), 0));
  std::array<std::span<const std::byte>, 30> due;
  ASSERT_EQ(line.due(1'000, due), 30U);
  line.pop(30);
  for (int i = 60; i < 150; ++i) ASSERT_TRUE(line.push(packet(1'000, i), 0));
  const auto all = take(line, 1'000);
  ASSERT_EQ(all.size(), 120U);
  for (int i = 0; i < 120; ++i) ASSERT_EQ(all[static_cast<std::size_t>(i)], 30 + i);
}

TEST(DelayLine, CapacityFollowsTheBandwidthDelayProduct) {
  EXPECT_EQ(delay_capacity(1'000'000'000, 1'000'000), 250'000U + 512 * 1024);
  EXPECT_EQ(delay_capacity(400'000'000'000, 100'000'000), 64U * 1024 * 1024);
  EXPECT_EQ(delay_capacity(0, 1'000), 2'500U + 512 * 1024);
}

}  // namespace
}  // namespace clustar::bench::fabric
