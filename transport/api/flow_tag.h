// What the sender knows about the flow that a message belongs to.
#pragma once

#include <cstdint>

namespace clustar::transport {

struct FlowTag {
  std::uint8_t traffic_class = 0;
  std::uint64_t coflow = 0;  // 0 = unidentified
  std::uint64_t bytes = 0;   // size of the whole coflow on this edge; 0 = unknown
};

}  // namespace clustar::transport
