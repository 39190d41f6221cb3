#include "libfabric_shim/rdm/waste_memory.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace clustar::transport::ofi {
namespace {

TEST(WasteMemory, AllThatIsThrownAwayGoesToTheSameMemory) {
  WasteMemory waste;
  const auto first = waste.at_least(100'000);
  EXPECT_EQ(waste.at_least(1), first);
  EXPECT_EQ(waste.at_least(100'000), first);
  first[99'999] = std::byte{1};
}

// As peers do that announce a little more each time, and never send.
TEST(WasteMemory, WhatIsHeldIsBoundedInSum) {
  WasteMemory waste;
  std::vector<WasteMemory::Shared> held;
  std::set<std::byte*> pieces;
  for (std::size_t bytes = 1; bytes <= WasteMemory::kMost; bytes += bytes / 64 + 1) {
    held.push_back(waste.at_least(bytes));
    ASSERT_NE(held.back(), nullptr);
    pieces.insert(held.back().get());
  }
  EXPECT_LE(pieces.size(), 11U) << "64 KiB to 64 MiB, each twice as long as the one before";
  EXPECT_EQ(waste.at_least(WasteMemory::kMost + 1), nullptr);
}

// A peer that holds little while others come and go.
TEST(WasteMemory, WhatIsHeldServesAgainAfterALongerOneEnded) {
  WasteMemory waste;
  const auto small = waste.at_least(1);
  const auto middle = waste.at_least(100'000);
  EXPECT_NE(middle, small);
  waste.at_least(WasteMemory::kMost);
  EXPECT_EQ(waste.at_least(1), small);
  EXPECT_EQ(waste.at_least(70'000), middle);
  EXPECT_EQ(waste.at_least(WasteMemory::kMost).use_count(), 1);
}

TEST(WasteMemory, IsGivenBackWithTheLast) {
  WasteMemory waste;
  auto held = waste.at_least(1000);
  const std::weak_ptr<std::byte[]> watch = held;
  held.reset();
  EXPECT_TRUE(watch.expired());
  EXPECT_NE(waste.at_least(1000), nullptr);
}

}  // namespace
}  // namespace clustar::transport::ofi
