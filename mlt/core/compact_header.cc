#include "mlt/core/compact_header.h"

namespace clustar::mlt {

CompactHeader CompactHeader::decode(std::uint32_t word) {
  return {static_cast<std::uint8_t>(word >> 24), (word >> 4) & (kMaxPackets - 1), static_cast<std::uint8_t>(word & 15)};
}

std::uint32_t CompactHeader::encode() const {
  return std::uint32_t{slot} << 24 | (index & (kMaxPackets - 1)) << 4 | (generation & 15u);
}

}  // namespace clustar::mlt
