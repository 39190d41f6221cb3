// What stands for a header where a backend carries 32 bits only (an RDMA immediate).
#pragma once

#include <cstdint>

#include "mlt/core/wire.h"

namespace clustar::mlt {

// What identifies a packet of a receive whose slot both know.
//  31     24 23        4 3         0
// | slot (8) | index (20) | generation (4) |
struct CompactHeader {
  std::uint8_t slot = 0;
  std::uint32_t index = 0;  // below kMaxPackets
  std::uint8_t generation = 0;

  static CompactHeader decode(std::uint32_t word);
  std::uint32_t encode() const;
  bool operator==(const CompactHeader&) const = default;
};

}  // namespace clustar::mlt
