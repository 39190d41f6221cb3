// Content that can be told apart: stale, shifted, cut or swapped data must differ.
#include "bench/perf/memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace clustar::bench::perf {
namespace {

TEST(Content, EveryLengthChecksAndEveryByteCounts) {
  for (const std::size_t size : {1u, 7u, 8u, 9u, 1000u}) {
    std::vector<std::byte> data(size);
    fill(data, 42);
    EXPECT_FALSE(first_difference(data, 42)) << size;
    for (const std::size_t at : {std::size_t{0}, size / 2, size - 1}) {
      data[at] ^= std::byte{1};
      EXPECT_EQ(first_difference(data, 42), at) << size;
      data[at] ^= std::byte{1};
    }
  }
}

TEST(Content, OtherSeedsAndOtherPlacesDiffer) {
  std::vector<std::byte> data(4096);
  fill(data, 42);
  EXPECT_TRUE(first_difference(data, 43));
  std::rotate(data.begin(), data.begin() + 8, data.end());
  EXPECT_EQ(first_difference(data, 42), 0u);
}

TEST(Memory, IsAllocatedOrAnError) {
  auto memory = Memory::allocate(1u << 20);
  ASSERT_TRUE(memory);
  EXPECT_EQ(memory->size(), 1u << 20);
  EXPECT_EQ(memory->part(4096, 1)[0], std::byte{0xe7});
  const auto impossible = Memory::allocate(std::size_t{1} << 60);
  ASSERT_FALSE(impossible);
  EXPECT_NE(impossible.error().message.find("--bytes"), std::string::npos);
}

}  // namespace
}  // namespace clustar::bench::perf
