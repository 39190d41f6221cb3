#include "transport/base/bytes.h"

#include <gtest/gtest.h>

#include <array>

namespace clustar {
namespace {

TEST(Bytes, WritesBigEndianAndZeroesTheRest) {
  std::array<std::byte, 8> wire;
  wire.fill(std::byte{0xff});
  WireWriter writer{std::span<std::byte, 8>(wire)};
  writer.store<1>(std::uint16_t{0x1234});
  writer.store<4>(std::uint32_t{0xa1b2c3d4});
  const std::array<unsigned, 8> expected{0, 0x12, 0x34, 0, 0xa1, 0xb2, 0xc3, 0xd4};
  for (std::size_t i = 0; i < wire.size(); ++i) EXPECT_EQ(std::to_integer<unsigned>(wire[i]), expected[i]) << i;
}

TEST(Bytes, ReadsWhatWasWritten) {
  std::array<std::byte, 15> wire;
  WireWriter writer{std::span<std::byte, 15>(wire)};
  writer.store<0>(std::uint8_t{7});
  writer.store<1>(std::uint64_t{0x0102030405060708});
  writer.store<9>(std::uint16_t{65535});
  writer.store<11>(std::uint32_t{1});
  const WireReader reader{std::span<const std::byte, 15>(wire)};
  EXPECT_EQ((reader.load<std::uint8_t, 0>()), 7);
  EXPECT_EQ((reader.load<std::uint64_t, 1>()), 0x0102030405060708u);
  EXPECT_EQ((reader.load<std::uint16_t, 9>()), 65535);
  EXPECT_EQ((reader.load<std::uint32_t, 11>()), 1u);
}

}  // namespace
}  // namespace clustar
