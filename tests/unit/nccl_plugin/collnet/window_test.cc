#include "nccl_plugin/collnet/window.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace clustar::nccl_plugin {
namespace {

// Byte by byte: whose it is, and that each share is one piece, in the order of ranks.
TEST(CollNetWindow, SharesAreWhoseBytesTheyAre) {
  for (std::uint32_t ranks = 1; ranks <= 4; ++ranks) {
    for (std::size_t each = 0; each <= 5; ++each) {
      for (std::size_t offset = 0; offset <= each * ranks; ++offset) {
        for (std::size_t bytes = 0; offset + bytes <= each * ranks; ++bytes) {
          const Window window{each, offset, bytes, ranks};
          ASSERT_TRUE(check(window, 1));
          EXPECT_EQ(window.whole(), offset == 0 && bytes == each * ranks);
          std::size_t at = 0;
          for (const Share& share : shares_of(window)) {
            ASSERT_EQ(share.begin, at);
            ASSERT_GT(share.bytes, 0u);
            for (std::size_t i = 0; i < share.bytes; ++i) ASSERT_EQ((offset + at + i) / each, share.rank);
            at += share.bytes;
            ASSERT_EQ(share_of(window, share.rank).bytes, share.bytes);
          }
          ASSERT_EQ(at, bytes);
          std::size_t all = 0;
          for (std::uint32_t rank = 0; rank < ranks; ++rank) all += share_of(window, rank).bytes;
          ASSERT_EQ(all, bytes);
        }
      }
    }
  }
}

TEST(CollNetWindow, WhatNoWholeHasIsRefused) {
  EXPECT_FALSE(check({8, 0, 17, 2}, 1));
  EXPECT_FALSE(check({8, 17, 0, 2}, 1));
  EXPECT_FALSE(check({8, 9, 8, 2}, 1));
  EXPECT_FALSE(check({SIZE_MAX, 0, 1, 2}, 1));
  EXPECT_FALSE(check({8, SIZE_MAX, 2, 2}, 1));
  EXPECT_FALSE(check({8, 2, 4, 2}, 4));
  EXPECT_FALSE(check({6, 0, 4, 2}, 4));
  EXPECT_TRUE(check({8, 4, 12, 2}, 4));
  EXPECT_TRUE(check({SIZE_MAX / 4, 0, 8, 4}, 1));
}

}  // namespace
}  // namespace clustar::nccl_plugin
