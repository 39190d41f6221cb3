// Collectives of NCCL on ranks that are processes, as nccl-tests runs them: sizes, times, and a check of all bits.

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "tests/nccl_host/kernels/datatype.h"
#include "tests/nccl_host/perf/expected.h"
#include "tests/nccl_host/perf/options.h"
#include "tests/nccl_host/ranks/ranks.h"

namespace nccl_host {
namespace {

// A byte of an output that nothing was written to.
constexpr unsigned char kForgotten = 0xa5;

// Of all ranks, in memory that they share.
struct Shared {
  std::atomic<int> id_ready;
  ncclUniqueId id;
  std::atomic<uint64_t> wrong;
};

void Require(ncclResult_t result, const char* what) {
  if (result == ncclSuccess) return;
  std::fprintf(stderr, "nccl-host-perf: %s: %s (%s)\n", what, ncclGetErrorString(result), ncclGetLastError(nullptr));
  std::exit(1);
}

class Rank {
 public:
  Rank(const Options& options, int rank, Shared& shared) : options_(options), rank_(rank), shared_(shared) {
    setenv("NCCL_HOSTID", ("rank" + std::to_string(rank)).c_str(), 1);
    if (rank == 0) {
      Require(ncclGetUniqueId(&shared.id), "ncclGetUniqueId");
      shared.id_ready = 1;
    }
    // atomic::wait knows only threads of one process. The parent ends this one when the time is over.
    while (shared.id_ready == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    Require(ncclCommInitRank(&comm_, options.ranks, shared.id, rank), "ncclCommInitRank");
    cudaStreamCreate(&stream_);
    const size_t most = options.max_bytes * static_cast<size_t>(options.ranks);
    cudaMalloc(&input_, most);
    cudaMalloc(&output_, most);
    if (options.op == Operation::kPreMulSum) {
      const std::vector<char> factor = Values(options.type, 1, [](size_t) { return 2; });
      Require(
          ncclRedOpCreatePreMulSum(&op_, const_cast<char*>(factor.data()), NcclType(), ncclScalarHostImmediate, comm_),
          "ncclRedOpCreatePreMulSum");
    } else {
      op_ = static_cast<ncclRedOp_t>(options.op);
    }
  }

  ~Rank() {
    cudaStreamSynchronize(stream_);
    if (options_.op == Operation::kPreMulSum) ncclRedOpDestroy(op_, comm_);
    Require(ncclCommDestroy(comm_), "ncclCommDestroy");
    cudaStreamDestroy(stream_);
    cudaFree(input_);
    cudaFree(output_);
  }

  void Run() {
    for (size_t bytes = options_.min_bytes; bytes <= options_.max_bytes; bytes *= options_.factor) RunSize(bytes);
  }

 private:
  ncclDataType_t NcclType() const { return static_cast<ncclDataType_t>(options_.type); }

  void RunSize(size_t bytes) {
    const size_t count = std::max<size_t>(bytes / SizeOf(options_.type), 1);
    const Problem problem{options_, count};
    const std::vector<char> input = Input(problem, rank_);
    std::memcpy(input_, input.data(), input.size());
    const std::vector<char> expected = Output(problem, rank_);
    Forget(expected.size());
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < options_.iterations; ++i) {
      if (options_.check && i > 0 && i + 1 == options_.iterations) Forget(expected.size());
      Call(count);
    }
    cudaStreamSynchronize(stream_);
    const std::chrono::duration<double, std::micro> taken = std::chrono::steady_clock::now() - begin;
    ncclResult_t asynchronous = ncclSuccess;
    ncclCommGetAsyncError(comm_, &asynchronous);
    Require(asynchronous, "ncclCommGetAsyncError");
    uint64_t wrong = 0;
    if (options_.check) wrong = Different(problem, expected, output_);
    if (wrong != 0) SayFirst(expected);
    shared_.wrong += wrong;
    if (rank_ != 0 && wrong == 0) return;
    std::printf("%4d %12zu %12zu %8s %10s %12.1f %10s\n", rank_, count * SizeOf(options_.type), count,
                options_.type_name.c_str(), options_.op_name.c_str(), taken.count() / options_.iterations,
                options_.check ? std::to_string(wrong).c_str() : "N/A");
    std::fflush(stdout);
  }

  // What the calls before have put there would hide that the last one puts nothing.
  void Forget(size_t bytes) {
    cudaStreamSynchronize(stream_);
    std::memset(output_, kForgotten, bytes);
  }

  void SayFirst(const std::vector<char>& expected) const {
    const auto* actual = static_cast<const unsigned char*>(output_);
    size_t at = 0;
    while (actual[at] == static_cast<unsigned char>(expected[at])) ++at;
    std::printf("rank %d, first wrong: byte %zu of %zu is 0x%02x instead of 0x%02x%s\n", rank_, at, expected.size(),
                actual[at], static_cast<unsigned char>(expected[at]),
                actual[at] == kForgotten ? " (nothing was written there)" : "");
    std::fflush(stdout);
  }

  void Call(size_t count) {
    const ncclDataType_t type = NcclType();
    const int next = (rank_ + 1) % options_.ranks;
    const int previous = (rank_ + options_.ranks - 1) % options_.ranks;
    switch (options_.collective) {
      case Collective::kAllReduce:
        return Require(ncclAllReduce(input_, output_, count, type, op_, comm_, stream_), "ncclAllReduce");
      case Collective::kReduceScatter:
        return Require(ncclReduceScatter(input_, output_, count, type, op_, comm_, stream_), "ncclReduceScatter");
      case Collective::kAllGather:
        return Require(ncclAllGather(input_, output_, count, type, comm_, stream_), "ncclAllGather");
      case Collective::kBroadcast:
        return Require(ncclBroadcast(input_, output_, count, type, options_.root, comm_, stream_), "ncclBroadcast");
      case Collective::kReduce:
        return Require(ncclReduce(input_, output_, count, type, op_, options_.root, comm_, stream_), "ncclReduce");
      case Collective::kSendRecv:
        Require(ncclGroupStart(), "ncclGroupStart");
        Require(ncclSend(input_, count, type, next, comm_, stream_), "ncclSend");
        Require(ncclRecv(output_, count, type, previous, comm_, stream_), "ncclRecv");
        return Require(ncclGroupEnd(), "ncclGroupEnd");
    }
  }

  const Options& options_;
  int rank_;
  Shared& shared_;
  ncclComm_t comm_ = nullptr;
  cudaStream_t stream_ = nullptr;
  ncclRedOp_t op_ = ncclSum;
  void* input_ = nullptr;
  void* output_ = nullptr;
};

int Main(const Options& options, char** argv) {
  const SharedMemory memory(options, sizeof(Shared));
  auto& shared = *static_cast<Shared*>(memory.get());
  const auto run = [&](int rank) { Rank(options, rank, shared).Run(); };
  if (options.rank >= 0) return run(options.rank), 0;
  std::printf("# %s, %d ranks; NCCL's host code, emulated device\n%4s %12s %12s %8s %10s %12s %10s\n",
              options.collective_name.c_str(), options.ranks, "rank", "bytes", "count", "type", "redop", "time (us)",
              "#wrong");
  if (!Ranks(options, memory, argv, run).Await()) return 1;
  std::printf("# %s: %llu wrong\n", options.check ? "checked" : "not checked",
              static_cast<unsigned long long>(shared.wrong.load()));
  return shared.wrong == 0 ? 0 : 1;
}

}  // namespace
}  // namespace nccl_host

int main(int argc, char** argv) { return nccl_host::Main(nccl_host::ParseOrExit(argc, argv), argv); }
