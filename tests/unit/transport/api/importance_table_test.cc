#include "transport/api/importance_table.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace clustar::transport {
namespace {

using Part = ImportanceTable::Part;
using Parts = std::vector<Part>;

constexpr std::size_t kBlock = 100;
constexpr TimePoint kNow = TimePoint(std::chrono::seconds(1));

// Nothing of it is ever read: an address is enough.
const std::byte* address_of(std::uintptr_t address) { return reinterpret_cast<const std::byte*>(address); }

class ImportanceTableTest : public testing::Test {
 protected:
  void mark(std::uintptr_t begin, const std::vector<std::uint8_t>& important, TimePoint now = kNow,
            std::size_t less = 0) {
    table_.mark(address_of(begin), important.size() * kBlock - less, kBlock, important, now);
  }
  std::optional<Parts> find(std::uintptr_t begin, std::size_t bytes, TimePoint now = kNow) {
    return table_.find(address_of(begin), bytes, now);
  }

  ImportanceTable table_;
};

TEST_F(ImportanceTableTest, TellsWhatOfAMessageIsImportant) {
  EXPECT_EQ(find(1000, 50), std::nullopt) << "nothing is marked";
  mark(1000, {0, 1, 1, 0, 1}, kNow, 30);
  EXPECT_EQ(find(1000, 470), (Parts{{100, 200}, {400, 70}}));
  EXPECT_EQ(find(1150, 100), (Parts{{0, 100}}));
  EXPECT_EQ(find(1000, 100), Parts{}) << "all of it may be lost, which is something else than nothing said";
  EXPECT_EQ(find(500, 1000), (Parts{{600, 200}, {900, 70}})) << "it begins before the range and ends behind it";
  EXPECT_EQ(find(1470, 10), std::nullopt);
  EXPECT_EQ(find(990, 10), std::nullopt);
  EXPECT_EQ(table_.totals().ranges, 1u);
  EXPECT_EQ(table_.totals().messages, 4u);
  EXPECT_EQ(table_.totals().bytes, 470u + 100 + 100 + 1000);
  EXPECT_EQ(table_.totals().important_bytes, 270u + 100 + 0 + 270);
}

TEST_F(ImportanceTableTest, AMessageMayLieInSeveralRanges) {
  mark(1000, {1, 0});
  mark(1200, {1, 0});
  mark(1500, {1});
  EXPECT_EQ(find(1050, 500), (Parts{{0, 50}, {150, 100}, {450, 50}}));
}

TEST_F(ImportanceTableTest, ANewMarkReplacesWhatItOverlaps) {
  mark(1000, {1, 1});
  mark(1200, {1, 1});
  mark(1400, {1, 1});
  mark(1150, {0, 0});  // of the first and the second, not of the third
  EXPECT_EQ(table_.totals().ranges, 2u);
  EXPECT_EQ(find(1000, 150), std::nullopt);
  EXPECT_EQ(find(1000, 600), (Parts{{400, 200}}));
  EXPECT_EQ(table_.forget(address_of(1599), 1), 1u);
  EXPECT_EQ(table_.forget(address_of(1599), 1), 0u);
  EXPECT_EQ(find(1400, 200), std::nullopt);
  EXPECT_EQ(table_.forget_all(), 1u);
}

TEST_F(ImportanceTableTest, CopiesAreMarkedAsTheirOriginals) {
  mark(1000, {0, 1, 0, 1});
  table_.copied(address_of(1150), address_of(5000), 200, kNow);
  EXPECT_EQ(find(5000, 200), (Parts{{0, 50}, {150, 50}}));
  EXPECT_EQ(find(5050, 125), (Parts{{100, 25}}));
  EXPECT_EQ(find(5200, 100), std::nullopt);
  // A copy of a copy, then of memory of which nothing was said.
  table_.copied(address_of(5010), address_of(8000), 180, kNow);
  EXPECT_EQ(find(8000, 180), (Parts{{0, 40}, {140, 40}}));
  table_.copied(address_of(100), address_of(8000), 10, kNow);
  EXPECT_EQ(find(8000, 180), std::nullopt) << "the place has other bytes";
  EXPECT_EQ(find(5000, 200), (Parts{{0, 50}, {150, 50}}));
}

TEST_F(ImportanceTableTest, WhatIsOldIsForgotten) {
  mark(1000, {1});
  mark(2000, {1}, kNow + std::chrono::seconds(1));
  const TimePoint later = kNow + ImportanceTable::kKept;
  EXPECT_TRUE(find(1000, 1, later));
  EXPECT_EQ(find(1000, 1, later + std::chrono::nanoseconds(1)), std::nullopt);
  EXPECT_TRUE(find(2000, 1, later + std::chrono::seconds(1)));
  // A copy is as old as its original.
  table_.copied(address_of(2000), address_of(3000), 100, later);
  EXPECT_EQ(find(3000, 1, later + std::chrono::seconds(2)), std::nullopt);
}

TEST_F(ImportanceTableTest, RangesAndBlocksAreBoundedAndTheOldestGiveWay) {
  for (std::uintptr_t i = 0; i <= ImportanceTable::kMostRanges; ++i) mark(1000 + i * 200, {1});
  EXPECT_EQ(table_.totals().ranges, ImportanceTable::kMostRanges);
  EXPECT_EQ(find(1000, 1), std::nullopt);
  EXPECT_TRUE(find(1200, 1));
  const std::vector<std::uint8_t> many(ImportanceTable::kMostBlocksOfRange, 1);
  const std::uintptr_t apart = ImportanceTable::kMostBlocksOfRange * kBlock;
  for (std::uintptr_t i = 1; i <= 20; ++i) mark(i * apart, many);
  EXPECT_EQ(table_.totals().ranges, ImportanceTable::kMostBlocks / ImportanceTable::kMostBlocksOfRange);
  EXPECT_TRUE(find(20 * apart, 1));
}

TEST_F(ImportanceTableTest, ThreadsMarkAndLookAtTheSameTime) {
  std::atomic<bool> stop{false};
  std::thread marks([&] {
    while (!stop) {
      for (std::uintptr_t i = 1; i < 50; ++i) mark(i * 1000, {0, 1});
      table_.forget(address_of(20'000), 5000);
    }
  });
  for (int i = 0; i < 5000; ++i) {
    const auto parts = find(7000, 200);
    if (parts) {
      EXPECT_EQ(*parts, (Parts{{100, 100}}));
    }
    table_.copied(address_of(7000), address_of(900'000), 200, kNow);
  }
  stop = true;
  marks.join();
}

}  // namespace
}  // namespace clustar::transport
