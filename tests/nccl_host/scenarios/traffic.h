#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstddef>
#include <vector>

#include "tests/nccl_host/scenarios/context.h"

namespace nccl_host {

// A communicator's use: a stream and buffers, an operation started and its result compared. One at a time.
class Traffic {
 public:
  Traffic(Context& context, ncclComm_t communicator, size_t count);
  ~Traffic();
  Traffic(const Traffic&) = delete;
  Traffic& operator=(const Traffic&) = delete;

  // All-reduce, sum. The first element is the sum of what ranks say.
  ncclResult_t AllReduce(int round, int said = 0);
  // Several sends to each peer, and receives from each; to be called in no group.
  void AllToAll(int round, int sends_per_peer);
  bool Done() const { return cudaStreamQuery(stream_) == cudaSuccess; }
  // Waits, compares; the sum of what ranks said.
  // With `error`, one that the communicator tells meanwhile is put there, and nothing else counts; otherwise it is
  // required that there is none.
  int Finish(ncclResult_t* error = nullptr);

 private:
  float Value(int rank, size_t index) const;
  float* input() const { return static_cast<float*>(input_); }
  float* output() const { return static_cast<float*>(output_); }

  Context& context_;
  ncclComm_t communicator_;
  size_t count_;
  int ranks_ = 0;
  int rank_ = 0;
  int round_ = 0;
  bool reduces_ = true;
  cudaStream_t stream_ = nullptr;
  void* input_ = nullptr;
  void* output_ = nullptr;
};

}  // namespace nccl_host
