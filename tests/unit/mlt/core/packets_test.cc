#include "mlt/core/packets.h"

#include <gtest/gtest.h>

#include <array>

#include "mlt/core/wire.h"

namespace clustar::mlt {
namespace {

TEST(Packets, PacketsCoverTheMessageOnce) {
  for (const std::uint16_t segment : {64, 1408, 65535}) {
    for (const std::uint32_t bytes : {0u, 1u, 63u, 64u, 65u, 1408u, 1409u, 131070u, 1u << 24}) {
      std::uint64_t sum = 0;
      const std::uint32_t packets = packet_count(bytes, segment);
      for (std::uint32_t i = 0; i < packets; ++i) {
        const std::uint32_t size = packet_bytes(i, bytes, segment);
        EXPECT_TRUE(size > 0 || bytes == 0);
        EXPECT_TRUE(size == segment || i + 1 == packets);
        sum += size;
      }
      EXPECT_EQ(sum, bytes);
      EXPECT_EQ(packet_bytes(packets, bytes, segment), 0u);
    }
  }
}

TEST(ParityBlocks, TheLastIsWhatIsLeft) {
  EXPECT_EQ(block_count(1), 1u);
  EXPECT_EQ(block_count(64), 1u);
  EXPECT_EQ(block_count(65), 2u);
  EXPECT_EQ(block_packets(0, 65), 64u);
  EXPECT_EQ(block_packets(1, 65), 1u);
  EXPECT_EQ(block_packets(0, 2), 2u);
}

bool accepted(const DataHeader& data) {
  std::array<std::byte, kMaxHeader> bytes{};
  return parse(std::span(bytes).first(serialize(data, bytes))).has_value();
}

TEST(ParityBlocks, AHeaderIsOfABlockThatTheMessageHas) {
  DataHeader data;
  data.message_bytes = 65 * 64;
  data.segment = 64;
  data.parity = true;
  data.index = 2 * kMaxParity - 1;
  EXPECT_TRUE(accepted(data));
  data.index = 2 * kMaxParity;
  EXPECT_FALSE(accepted(data)) << "65 packets are two blocks";
  data.index = 0;
  data.message_bytes = 64;
  EXPECT_FALSE(accepted(data)) << "one packet has none";
  data.message_bytes = 65;
  EXPECT_TRUE(accepted(data));
  data.retransmission = true;
  EXPECT_FALSE(accepted(data));
  data.retransmission = false;
  data.important = true;
  EXPECT_FALSE(accepted(data));
  data.important = false;
  data.passed = 1;
  EXPECT_FALSE(accepted(data));
}

}  // namespace
}  // namespace clustar::mlt
