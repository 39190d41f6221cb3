#pragma once

#include <cstddef>
#include <span>

#include "tests/nccl_host/kernels/primitive.h"

namespace nccl_host {

// A rank's place in a ring: ranks from this one on, in the ring's order, and its index.
struct Ring {
  std::span<const int> ranks;
  int index = 0;
};

// A channel's share of a collective, in elements.
struct Part {
  size_t total = 0;   // of all channels; per rank where each rank has its own
  size_t offset = 0;  // where this channel's share begins
  size_t count = 0;
  size_t chunk = 0;
};

struct Buffers {
  const char* input = nullptr;
  char* output = nullptr;
  size_t element = 1;  // bytes
};

// What a rank does in each collective: which steps, in which order. Both ends of every connection agree on them.
void AllReduce(const Ring& ring, Part part, const Buffers& buffers, Primitive& primitive);
void ReduceScatter(const Ring& ring, const Part& part, const Buffers& buffers, Primitive& primitive);
void AllGather(const Ring& ring, const Part& part, const Buffers& buffers, Primitive& primitive);
void Broadcast(const Ring& ring, const Part& part, const Buffers& buffers, int root, Primitive& primitive);
void Reduce(const Ring& ring, const Part& part, const Buffers& buffers, int root, Primitive& primitive);

// One direction of send/receive: at least one step, in chunks of so many bytes.
void SendAll(const char* input, size_t bytes, size_t chunk, Primitive& primitive);
void ReceiveAll(char* output, size_t bytes, size_t chunk, Primitive& primitive);

}  // namespace nccl_host
