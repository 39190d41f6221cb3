#include "mlt/core/reordering.h"

#include <gtest/gtest.h>

namespace clustar::mlt {
namespace {

AckBlock block_of(std::uint32_t largest, std::uint64_t before) {
  AckBlock block;
  block.largest = largest;
  block.before = before;
  return block;
}

TEST(MltReordering, TheToleranceGrowsToWhatWasSeenAndStaysThere) {
  ReorderTolerance tolerance(3);
  EXPECT_EQ(tolerance.packets(), 3);
  tolerance.on_late(1);
  EXPECT_EQ(tolerance.packets(), 3);
  tolerance.on_late(10);
  EXPECT_EQ(tolerance.packets(), 11);
  tolerance.on_late(5);
  EXPECT_EQ(tolerance.packets(), 11);
  tolerance.on_late(64);
  EXPECT_EQ(tolerance.packets(), ReorderTolerance::kMost);
}

TEST(MltReordering, SixteenLossesInARowHalveIt) {
  ReorderTolerance tolerance(3);
  tolerance.on_late(39);
  for (int i = 0; i < 15; ++i) tolerance.on_lost();
  tolerance.on_late(2);  // not in a row
  for (int i = 0; i < 15; ++i) tolerance.on_lost();
  EXPECT_EQ(tolerance.packets(), 40);
  tolerance.on_lost();
  EXPECT_EQ(tolerance.packets(), 20);
  for (int i = 0; i < 200; ++i) tolerance.on_lost();
  EXPECT_EQ(tolerance.packets(), 3) << "never below what it began with";
}

TEST(MltReordering, OneWhoWantsMoreThanTheMostKeepsIt) {
  ReorderTolerance tolerance(200);
  tolerance.on_late(64);
  EXPECT_EQ(tolerance.packets(), 200);
}

TEST(MltReordering, WhatWasCalledLostAndComesIsNoticedOnce) {
  ReorderTolerance tolerance(3);
  CalledLost lost;
  lost.add(100, tolerance);
  lost.look(block_of(99, ~std::uint64_t{0}), tolerance);   // an old block
  lost.look(block_of(165, ~std::uint64_t{0}), tolerance);  // tells nothing of it
  lost.look(block_of(110, ~(std::uint64_t{1} << 9)), tolerance);
  EXPECT_EQ(tolerance.packets(), 3);
  lost.look(block_of(110, std::uint64_t{1} << 9), tolerance);
  EXPECT_EQ(tolerance.packets(), 11);
  lost.look(block_of(120, std::uint64_t{1} << 19), tolerance);
  EXPECT_EQ(tolerance.packets(), 11);
}

TEST(MltReordering, NumbersWrap) {
  ReorderTolerance tolerance(3);
  CalledLost lost;
  lost.add(0xffff'fffe, tolerance);
  lost.look(block_of(4, std::uint64_t{1} << 5), tolerance);
  EXPECT_EQ(tolerance.packets(), 7);
}

// It has room for eight; the one that makes room never came.
TEST(MltReordering, WhatStaysAwayCountsAsLost) {
  ReorderTolerance tolerance(3);
  CalledLost lost;
  tolerance.on_late(39);
  for (std::uint32_t seq = 0; seq < 8 + 15; ++seq) lost.add(seq, tolerance);
  EXPECT_EQ(tolerance.packets(), 40);
  lost.add(23, tolerance);
  EXPECT_EQ(tolerance.packets(), 20);
}

}  // namespace
}  // namespace clustar::mlt
