#include "mlt/core/bitmap.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

#include "transport/base/rng.h"

namespace clustar::mlt {
namespace {

std::uint32_t brute_first(const std::vector<bool>& model, std::uint32_t from, bool wanted) {
  for (std::uint32_t i = from; i < model.size(); ++i) {
    if (model[i] == wanted) return i;
  }
  return static_cast<std::uint32_t>(model.size());
}

TEST(PacketBitmap, AgreesWithAModelAtAllSizesAroundWords) {
  Rng rng(1);
  PacketBitmap bitmap(300);
  for (const std::uint32_t size : {0u, 1u, 63u, 64u, 65u, 127u, 128u, 129u, 300u, 257u}) {
    ASSERT_TRUE(bitmap.reset(size));
    std::vector<bool> model(size);
    EXPECT_EQ(bitmap.all(), size == 0);
    for (int step = 0; step < 2000 && size > 0; ++step) {
      const auto index = static_cast<std::uint32_t>(rng.below(size + 10));  // some do not exist
      const bool exists = index < size;
      const auto end = index + static_cast<std::uint32_t>(rng.below(100));
      std::uint32_t changed = 0;
      switch (rng.below(5)) {
        case 0:
        case 1:
          ASSERT_EQ(bitmap.set(index), exists && !model[index]);
          if (exists) model[index] = true;
          break;
        case 2:
        case 3:
          ASSERT_EQ(bitmap.clear(index), exists && model[index]);
          if (exists) model[index] = false;
          break;
        default:
          if (!rng.chance(0.02)) break;  // else all is soon full
          for (std::uint32_t i = index; i < std::min(end, size); ++i) {
            changed += !model[i];
            model[i] = true;
          }
          ASSERT_EQ(bitmap.set_range(index, end), changed);
      }
      const auto count = static_cast<std::uint32_t>(std::count(model.begin(), model.end(), true));
      ASSERT_EQ(bitmap.count(), count);
      ASSERT_EQ(bitmap.missing(), size - count);
      ASSERT_EQ(bitmap.all(), count == size);
      ASSERT_EQ(bitmap.first_clear(index), brute_first(model, std::min(index, size), false));
      ASSERT_EQ(bitmap.first_set(index), brute_first(model, std::min(index, size), true));
      std::uint32_t in_range = 0;
      for (std::uint32_t i = index; i < std::min(end, size); ++i) in_range += model[i];
      ASSERT_EQ(bitmap.count(index, end), in_range);
      ASSERT_EQ(bitmap.test(index), exists && model[index]);
    }
  }
}

TEST(PacketBitmap, ResetClearsAndRefusesWhatIsTooLarge) {
  PacketBitmap bitmap;
  ASSERT_TRUE(bitmap.reset(100));
  bitmap.set_range(0, 100);
  EXPECT_TRUE(bitmap.all());
  EXPECT_FALSE(bitmap.reset(PacketBitmap::kMaxSize + 1));
  EXPECT_EQ(bitmap.size(), 100u);
  ASSERT_TRUE(bitmap.reset(PacketBitmap::kMaxSize));
  EXPECT_EQ(bitmap.count(), 0u);
  EXPECT_EQ(bitmap.set_range(0, 0xffffffff), PacketBitmap::kMaxSize);
  EXPECT_EQ(bitmap.first_clear(0), PacketBitmap::kMaxSize);
  EXPECT_EQ(bitmap.word(PacketBitmap::kMaxSize / 64), 0u);
}

TEST(PacketBitmap, WindowsAreMostSignificantBitFirst) {
  PacketBitmap bitmap;
  ASSERT_TRUE(bitmap.reset(100));
  bitmap.set(10);
  bitmap.set(17);
  bitmap.set(18);
  bitmap.set(99);
  std::array<std::byte, 3> window;
  bitmap.extract(10, window);
  EXPECT_EQ(window, (std::array<std::byte, 3>{std::byte{0x81}, std::byte{0x80}, std::byte{0}}));
  bitmap.extract(98, window);
  EXPECT_EQ(window, (std::array<std::byte, 3>{std::byte{0x40}, std::byte{0}, std::byte{0}})) << "zeroes behind the end";
  bitmap.extract(0xffffffff, window);
  EXPECT_EQ(window, (std::array<std::byte, 3>{}));
}

TEST(PacketBitmap, ExtractShowsAnyWindow) {
  Rng rng(2);
  PacketBitmap from;
  std::vector<std::byte> window(40);
  for (int round = 0; round < 2000; ++round) {
    const auto size = static_cast<std::uint32_t>(1 + rng.below(400));
    ASSERT_TRUE(from.reset(size));
    for (std::uint32_t i = 0; i < size; ++i) {
      if (rng.chance(0.5)) from.set(i);
    }
    const auto base = static_cast<std::uint32_t>(rng.below(size));
    const std::span<std::byte> bytes = std::span(window).first(rng.below(window.size() + 1));
    from.extract(base, bytes);
    for (std::uint32_t i = 0; i < 8 * bytes.size(); ++i) {
      const bool shown = (bytes[i / 8] & std::byte{0x80} >> (i % 8)) != std::byte{0};
      ASSERT_EQ(shown, from.test(base + i));
    }
  }
}

}  // namespace
}  // namespace clustar::mlt
