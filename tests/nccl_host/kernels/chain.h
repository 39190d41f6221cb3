#pragma once

#include <cstddef>

#include "tests/nccl_host/kernels/primitive.h"
#include "tests/nccl_host/kernels/ring.h"

namespace nccl_host {

// A channel's share of a collective that a collective network sums up: of each loop over the channels one chunk.
struct ChainPart {
  size_t total = 0;  // of all channels, in elements
  size_t chunk = 0;
  size_t channels = 1;
  size_t index = 0;  // of this channel
};

// The two halves of an all-reduce, at once: up to the network, which sums, and down from it. `receives`: from a rank
// below; `sends`: to one; `top`: no rank is above.
void ChainUp(const ChainPart& part, const Buffers& buffers, bool receives, Primitive& primitive);
void ChainDown(const ChainPart& part, const Buffers& buffers, bool sends, bool top, Primitive& primitive);

}  // namespace nccl_host
