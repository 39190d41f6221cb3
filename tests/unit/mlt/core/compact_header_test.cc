#include "mlt/core/compact_header.h"

#include <gtest/gtest.h>

#include "transport/base/rng.h"

namespace clustar::mlt {
namespace {

TEST(CompactHeader, RoundTripsOverItsWholeRange) {
  for (const std::uint32_t slot : {0u, 1u, 255u}) {
    for (const std::uint32_t index : {0u, 1u, 0x55555u, kMaxPackets - 1}) {
      for (std::uint32_t generation = 0; generation < 16; ++generation) {
        const CompactHeader header{static_cast<std::uint8_t>(slot), index, static_cast<std::uint8_t>(generation)};
        EXPECT_EQ(CompactHeader::decode(header.encode()), header);
      }
    }
  }
  Rng rng(6);
  for (int i = 0; i < 10'000; ++i) {
    const auto word = static_cast<std::uint32_t>(rng.next());
    EXPECT_EQ(CompactHeader::decode(word).encode(), word);
  }
}

TEST(CompactHeader, FieldsDoNotRunIntoEachOther) {
  EXPECT_EQ((CompactHeader{1, 0, 0}.encode()), 0x01000000u);
  EXPECT_EQ((CompactHeader{0, 1, 0}.encode()), 0x00000010u);
  EXPECT_EQ((CompactHeader{0, 0, 1}.encode()), 0x00000001u);
  EXPECT_EQ((CompactHeader{0, kMaxPackets, 16}.encode()), 0u) << "out of range: cut";
}

}  // namespace
}  // namespace clustar::mlt
