#include "mlt/driver/importance_marks.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <vector>

namespace clustar::mlt::driver {
namespace {

constexpr std::uint8_t kFloat32 = 7, kFloat64 = 8;
constexpr std::uint16_t kSegment = 1448;

// Packets of equal floats; every tenth is a thousand times larger.
std::vector<std::byte> message_of(std::size_t packets) {
  std::vector<std::byte> bytes(packets * kSegment);
  for (std::size_t i = 0; i < bytes.size() / sizeof(float); ++i) {
    const float value = i * sizeof(float) / kSegment % 10 == 3 ? 1000.0f : 1.0f;
    std::memcpy(bytes.data() + i * sizeof(float), &value, sizeof(float));
  }
  return bytes;
}

TEST(ImportanceMarks, MarksThePacketsWithTheLargestValues) {
  ImportanceMarks marks(200'000, nullptr);
  EXPECT_TRUE(marks.wanted());
  const auto message = message_of(1000);
  ASSERT_NE(marks.of(message, kFloat32, kSegment), nullptr);
  const PacketBitmap* again = marks.of(message, kFloat32, kSegment);
  ASSERT_NE(again, nullptr);
  ASSERT_EQ(again->size(), 1000u);
  for (std::uint32_t i = 3; i < 1000; i += 10) EXPECT_TRUE(again->test(i)) << i;
  EXPECT_NEAR(again->count(), 200, 30) << "of the others so many that it is a fifth";
}

TEST(ImportanceMarks, MarksNothingUnlessItIsWantedAndTheValuesAreFloats) {
  const auto message = message_of(100);
  ImportanceMarks none(0, nullptr);
  EXPECT_FALSE(none.wanted());
  EXPECT_EQ(none.of(message, kFloat32, kSegment), nullptr);
  ImportanceMarks some(200'000, nullptr);
  for (const std::uint8_t datatype : {std::uint8_t{0}, kFloat64, std::numeric_limits<std::uint8_t>::max()}) {
    EXPECT_EQ(some.of(message, datatype, kSegment), nullptr) << int{datatype};
  }
  EXPECT_EQ(some.of(message, kFloat32, kSegment - 2), nullptr) << "a packet would cut a value";
}

TEST(ImportanceMarks, WhatTheProgramMarkedIsKeptInWholePackets) {
  transport::ImportanceTable table;
  constexpr TimePoint kNow{};
  const auto message = message_of(10);
  ImportanceMarks marks(200'000, &table);
  EXPECT_EQ(marks.told(message.data(), message.size(), kSegment, kNow), nullptr) << "nothing was said";
  std::vector<std::uint8_t> important(20, 0);  // of half packets
  important[4] = important[5] = important[6] = 1;
  table.mark(message.data(), message.size(), kSegment / 2, important, kNow);
  const PacketBitmap* told = marks.told(message.data(), message.size(), kSegment, kNow);
  ASSERT_NE(told, nullptr);
  for (std::uint32_t i = 0; i < 10; ++i) EXPECT_EQ(told->test(i), i == 2 || i == 3) << i;
  // A message that begins half a packet later is cut into other packets.
  told = marks.told(message.data() + kSegment / 2, 3 * kSegment, kSegment, kNow);
  ASSERT_NE(told, nullptr);
  for (std::uint32_t i = 0; i < 3; ++i) EXPECT_EQ(told->test(i), i == 1 || i == 2) << i;
}

TEST(ImportanceMarks, KnowsTheFloatsByNcclsNumbers) {
  EXPECT_EQ(float_type_of(6), FloatType::kF16);
  EXPECT_EQ(float_type_of(7), FloatType::kF32);
  EXPECT_EQ(float_type_of(9), FloatType::kBf16);
  EXPECT_EQ(float_type_of(10), std::nullopt);
}

}  // namespace
}  // namespace clustar::mlt::driver
