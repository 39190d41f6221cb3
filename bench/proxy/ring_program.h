// What the GPU kernel of a ring collective does on one channel, slice by slice. Pure arithmetic: no memory, no network.
#pragma once

#include <cstddef>
#include <cstdint>

#include "bench/proxy/steps.h"

namespace clustar::bench::proxy {

enum class Collective : std::uint8_t { kBroadcast, kAllGather, kReduceScatter, kAllReduce };

// One primitive on one slice: wait for what is received, combine, store, send. NCCL's send, recvReduceSend,
// recvReduceCopySend, recvCopySend and recv are the combinations of these flags.
struct SliceAction {
  bool receive = false;
  bool reduce = false;  // combine what is received with the input
  bool copy = false;    // store the outcome in the output
  bool send = false;
  std::size_t in = 0;     // element offset of the own contribution in the input
  std::size_t out = 0;    // element offset in the output
  std::size_t count = 0;  // elements; 0 is a transfer of 0 bytes, as NCCL sends for an empty slice
};

// How many steps of the connection buffer a chunk and a slice take.
struct StepShape {
  int chunk_steps = 1;
  int slice_steps = 1;
  int slices() const { return chunk_steps / slice_steps; }
};
StepShape step_shape(Collective collective, Protocol protocol);

struct RingPosition {
  int rank = 0;  // the ring is 0, 1, ... size - 1, 0
  int size = 2;
  int root = 0;  // broadcast
};

// Part of a collective that one channel carries, in elements. For reduce-scatter and all-gather a range of each rank's
// block of `block` elements; for the others a range of the whole buffer.
struct ChannelPart {
  std::size_t begin = 0;
  std::size_t count = 0;
};
// Same on all ranks. Small buffers use fewer channels; parts are 16-byte aligned and the last ones may be empty.
ChannelPart channel_part(int channel, int channels, std::size_t count, std::size_t total_bytes, std::size_t element);

class RingProgram {
 public:
  RingProgram() = default;
  // `limit`, of an all-gather: elements of the output; what blocks have beyond does not exist and is not sent.
  RingProgram(Collective collective, Protocol protocol, const RingPosition& position, const ChannelPart& part,
              std::size_t block, std::size_t element, std::size_t limit = SIZE_MAX);

  std::size_t actions() const { return loops_ * stages_ * slices_; }
  std::size_t sends() const { return loops_ * send_stages_ * slices_; }
  std::size_t receives() const { return loops_ * receive_stages_ * slices_; }
  SliceAction at(std::size_t index) const;
  SliceAction receive(std::size_t index) const;  // the action that consumes this receive

 private:
  struct Chunk {
    std::size_t offset;  // within the part
    std::size_t count;
  };
  Chunk chunk_of(std::size_t loop, int owner) const;
  int ring(int steps_back) const;
  void fill_all_reduce(SliceAction& action, std::size_t stage, int& owner) const;
  void fill_rooted(SliceAction& action) const;

  Collective collective_ = Collective::kAllReduce;
  RingPosition position_;
  ChannelPart part_;
  std::size_t block_ = 0;
  std::size_t element_ = 1;
  std::size_t limit_ = SIZE_MAX;
  std::size_t chunk_ = 0;      // elements of a full chunk
  std::size_t min_slice_ = 0;  // elements
  std::size_t loops_ = 0;
  std::size_t stages_ = 0;
  std::size_t send_stages_ = 0;
  std::size_t receive_stages_ = 0;
  std::size_t slices_ = 1;
};

}  // namespace clustar::bench::proxy
