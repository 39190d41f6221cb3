#pragma once

#include "tests/nccl_host/kernels/connection.h"
#include "tests/nccl_host/kernels/primitive.h"
#include "tests/nccl_host/kernels/reduction.h"

namespace nccl_host {

// What connection.fifo points to in Simple: layout of ncclConnFifo.
struct FifoEntry {
  int32_t mode;
  int32_t offset;
  int64_t size;
  void* pointer;
};
inline constexpr int32_t kFifoOffsets = 1;  // slots lie where offset says

struct SimpleShape {
  int slices = 1;           // per step of a ring
  int steps_per_slice = 1;  // slots that a slice takes
  size_t step_elements = 0;
};

// The protocol with a counter after whole slices.
class Simple final : public Primitive {
 public:
  // receive and send may be null; both get their step back on destruction.
  Simple(SimpleShape shape, const Reduction& reduction, Connection* receive, Connection* send, Poll poll);
  ~Simple() override;
  void Do(const Step& step) override;

 private:
  void Slice(const Step& slice);
  char* Slot(const Connection& connection, uint64_t step) const;

  SimpleShape shape_;
  const Reduction& reduction_;
  Connection* receive_;
  Connection* send_;
  Poll poll_;
};

}  // namespace nccl_host
