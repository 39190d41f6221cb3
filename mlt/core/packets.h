// How a message is cut: into packets, and for parity into blocks of them.
#pragma once

#include <algorithm>
#include <cstdint>

namespace clustar::mlt {

// Packets of a message: at least 1, for an empty message too.
constexpr std::uint32_t packet_count(std::uint32_t bytes, std::uint16_t segment) {
  return bytes == 0 ? 1 : (bytes + segment - 1) / segment;
}
constexpr std::uint32_t packet_bytes(std::uint32_t index, std::uint32_t bytes, std::uint16_t segment) {
  const std::uint64_t begin = std::uint64_t{index} * segment;
  return begin >= bytes ? 0 : static_cast<std::uint32_t>(bytes - begin < segment ? bytes - begin : segment);
}
// Blocks are so many consecutive packets of a message in sending order, the last block what is left. Of each there may
// be up to kMaxParity packets of parity, the rows of a code that depends on the block's size alone. A shorter packet
// counts as filled up with zeroes; parity is always a whole segment.
inline constexpr std::uint32_t kParityBlock = 64;
inline constexpr std::uint32_t kMaxParity = 16;

// `packets`: of the message.
constexpr std::uint32_t block_count(std::uint32_t packets) { return (packets + kParityBlock - 1) / kParityBlock; }
// Packets of one block.
constexpr std::uint32_t block_packets(std::uint32_t block, std::uint32_t packets) {
  return std::min(kParityBlock, packets - block * kParityBlock);
}

}  // namespace clustar::mlt
