#include "tests/nccl_host/scenarios/traffic.h"

#include <cstring>

namespace nccl_host {

Traffic::Traffic(Context& context, ncclComm_t communicator, size_t count)
    : context_(context), communicator_(communicator), count_(count) {
  Require(ncclCommCount(communicator, &ranks_), "ncclCommCount");
  Require(ncclCommUserRank(communicator, &rank_), "ncclCommUserRank");
  const size_t bytes = count * sizeof(float);
  const bool made = cudaStreamCreate(&stream_) == cudaSuccess && cudaMalloc(&input_, bytes) == cudaSuccess &&
                    cudaMalloc(&output_, bytes) == cudaSuccess;
  RequireThat(made, "no stream or no memory of the emulated device");
}

Traffic::~Traffic() {
  cudaStreamSynchronize(stream_);
  cudaStreamDestroy(stream_);
  cudaFree(input_);
  cudaFree(output_);
}

// Small whole numbers: sums are exact in any order.
float Traffic::Value(int rank, size_t index) const {
  return static_cast<float>((index * 3 + static_cast<size_t>(rank) * 5 + static_cast<size_t>(round_) * 7) % 13 + 1);
}

ncclResult_t Traffic::AllReduce(int round, int said) {
  round_ = round;
  reduces_ = true;
  // The emulated device's memory is the host's.
  for (size_t i = 0; i < count_; ++i) input()[i] = Value(rank_, i);
  input()[0] = static_cast<float>(said);
  std::memset(output_, 0xa5, count_ * sizeof(float));
  return ncclAllReduce(input_, output_, count_, ncclFloat, ncclSum, communicator_, stream_);
}

void Traffic::AllToAll(int round, int sends_per_peer) {
  round_ = round;
  reduces_ = false;
  for (size_t i = 0; i < count_; ++i) input()[i] = Value(rank_, i);
  std::memset(output_, 0xa5, count_ * sizeof(float));
  const size_t piece = count_ / static_cast<size_t>(ranks_) / static_cast<size_t>(sends_per_peer);
  Require(ncclGroupStart(), "ncclGroupStart");
  for (int peer = 0; peer < ranks_; ++peer) {
    for (int i = 0; i < sends_per_peer; ++i) {
      const size_t at = static_cast<size_t>(peer * sends_per_peer + i) * piece;
      Require(ncclSend(input() + at, piece, ncclFloat, peer, communicator_, stream_), "ncclSend");
      Require(ncclRecv(output() + at, piece, ncclFloat, peer, communicator_, stream_), "ncclRecv");
    }
  }
  Require(ncclGroupEnd(), "ncclGroupEnd");
  Finish();
  uint64_t wrong = 0;
  const size_t block = piece * static_cast<size_t>(sends_per_peer);
  for (int peer = 0; peer < ranks_; ++peer) {
    for (size_t i = 0; i < block; ++i)
      wrong += output()[static_cast<size_t>(peer) * block + i] != Value(peer, static_cast<size_t>(rank_) * block + i);
  }
  context_.shared.compared += block * static_cast<size_t>(ranks_);
  context_.shared.wrong += wrong;
}

int Traffic::Finish(ncclResult_t* error) {
  cudaStreamSynchronize(stream_);
  ncclResult_t told = ncclSuccess;
  Require(ncclCommGetAsyncError(communicator_, &told), "ncclCommGetAsyncError");
  if (error != nullptr && told != ncclInProgress) {
    *error = told;
    if (told != ncclSuccess) return 0;
  } else {
    RequireDone(communicator_, told, "ncclCommGetAsyncError tells");
  }
  if (!reduces_) return 0;
  uint64_t wrong = 0;
  for (size_t i = 1; i < count_; ++i) {
    float sum = 0;
    for (int rank = 0; rank < ranks_; ++rank) sum += Value(rank, i);
    wrong += output()[i] != sum;
  }
  context_.shared.compared += count_ - 1;
  context_.shared.wrong += wrong;
  return static_cast<int>(output()[0]);
}

}  // namespace nccl_host
