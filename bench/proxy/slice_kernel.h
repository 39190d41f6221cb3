// The GPU side of a transfer, on the host: moves one slice between user memory and the step buffers as NCCL's kernels
// do, reducing from the receive step and the own data straight into the send step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "bench/proxy/ring_program.h"

namespace clustar::bench::proxy {

struct SliceMemory {
  const std::byte* input = nullptr;  // the collective's input and output, from their first element
  std::byte* output = nullptr;
  const std::byte* receive_slot = nullptr;
  std::byte* send_slot = nullptr;
  std::uint64_t receive_step = 0;  // connection steps, for the flags of LL and LL128
  std::uint64_t send_step = 0;
};

class SliceKernel {
 public:
  explicit SliceKernel(Protocol protocol);

  // False, without effect, when the flags of the received lines are not all there yet (LL, LL128 only).
  bool run(const SliceAction& action, const SliceMemory& memory, DataType type, ReduceOp op);

 private:
  static void move(const SliceAction& action, const std::byte* own, std::byte* out, const std::byte* received,
                   std::byte* sent, DataType type, ReduceOp op);

  Protocol protocol_;
  std::vector<std::uint64_t> unpacked_;  // one step of payload, LL and LL128 only
  std::vector<std::uint64_t> outgoing_;
};

}  // namespace clustar::bench::proxy
