// One collective from start to completion: what the user asked for and how far each channel is.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "bench/proxy/comm_profiler.h"
#include "bench/proxy/communicator.h"
#include "bench/proxy/direct_blocks.h"
#include "bench/proxy/profiler_callback.h"
#include "bench/proxy/ring_program.h"

namespace clustar::bench::proxy {

// The state that a Pending shares with the progress thread.
class Completion {
 public:
  bool done() const { return done_.load(std::memory_order_acquire); }
  Result<CollectiveStats> wait() const;
  void finish(Result<CollectiveStats> result);  // once

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable finished_;
  std::optional<Result<CollectiveStats>> result_;
  std::atomic<bool> done_{false};
};

class PendingCollective final : public Pending {
 public:
  explicit PendingCollective(std::shared_ptr<const Completion> completion) : completion_(std::move(completion)) {}
  bool done() const override { return completion_->done(); }
  Result<CollectiveStats> wait() override { return completion_->wait(); }

 private:
  std::shared_ptr<const Completion> completion_;
};

struct CollectiveRequest {
  Collective collective = Collective::kAllReduce;
  const void* input = nullptr;
  void* output = nullptr;
  std::size_t count = 0;  // of the call: whole buffer, or one rank's block
  DataType type = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  int root = 0;
  std::size_t limit = SIZE_MAX;  // all-gather: elements of the output, where the last blocks end early
};

// A direct all-reduce of `count` elements at `data`: the exchange and the sums, before the all-gather.
struct DirectRequest {
  void* data = nullptr;
  std::size_t count = 0;
  DataType type = DataType::kFloat32;
  Missing missing = Missing::kZero;
  void* residual = nullptr;
};

// An all-to-all. The sizes are read before submitting returns.
struct ExchangeRequest {
  const void* send = nullptr;
  void* recv = nullptr;
  std::span<const std::size_t> send_bytes{};  // by rank, as the blocks lie
  std::span<const std::size_t> recv_bytes{};
};

// Of all ranks' blocks: NCCL's size of the collective, the larger of one rank's input and output.
std::size_t collective_bytes(const CollectiveRequest& request, int ranks);

// Counters are slices since the operation began; a later stage never overtakes an earlier one:
// posted (buffer given to the kernel) >= filled (kernel) >= transmitted (isend accepted) >= sent (test done).
struct ChannelWork {
  RingProgram program;
  std::size_t actions = 0;
  std::size_t action = 0;  // next of the kernel

  std::size_t sends = 0;
  bool send_begun = false;
  std::uint64_t send_base = 0;  // step of the connection at which this operation starts
  std::size_t posted = 0;
  std::size_t filled = 0;
  std::size_t transmitted = 0;
  std::size_t sent = 0;
  std::array<void*, kSteps> send_requests{};
  std::array<std::size_t, kSteps> send_sizes{};
  std::array<std::chrono::steady_clock::time_point, kSteps> send_times{};

  std::size_t receives = 0;
  std::uint64_t receive_base = 0;
  std::size_t consumed = 0;

  ProxySub send_sub;
  ProxySub receive_sub;
};

// Receives of the channels that share a comm are posted together: posted >= received (test done) >= ready (flushed).
struct GroupWork {
  bool begun = false;
  std::size_t receives = 0;  // of the channel with the most
  std::size_t posted = 0;
  std::size_t received = 0;
  std::size_t ready = 0;
  std::array<void*, kSteps> requests{};  // of the receive, then of its flush
};

// A send to or a receive from one peer, in transfers of `chunk` bytes, each in a step of its own.
struct PeerTransfers {
  int peer = 0;
  std::size_t link = 0;
  std::byte* memory = nullptr;  // the user's: what is sent, which is not written to, or where it is received
  std::size_t bytes = 0;        // above 0: empty blocks are not exchanged
  std::size_t chunk = 0;
  std::size_t transfers = 0;
  std::uint64_t number = 0;  // of this send from one of the two to the other, in the communicator
  std::uint64_t base = 0;    // step of the connection at which it starts
  std::array<void*, kSteps> requests{};
  ProxySub sub;

  std::size_t size_of(std::size_t transfer) const { return std::min(chunk, bytes - transfer * chunk); }
};

// posted (and at once filled by the kernel) >= transmitted (isend accepted) >= sent (test done).
struct PeerSend : PeerTransfers {
  std::byte* residual = nullptr;  // of the same elements; null: none
  std::size_t posted = 0;
  std::size_t transmitted = 0;
  std::size_t sent = 0;
  std::array<std::chrono::steady_clock::time_point, kSteps> times{};
  bool done() const { return sent == transfers; }
};

// posted >= received (test done) >= ready (flushed) >= consumed (copied by the kernel).
struct PeerReceive : PeerTransfers {
  std::size_t posted = 0;
  std::size_t received = 0;
  std::size_t ready = 0;
  std::size_t consumed = 0;
  bool done() const { return consumed == transfers; }
};

// The exchange of blocks and, of a direct all-reduce, the sum of the own one. Sends and receives are in the order of
// NCCL's plan.
struct ExchangeWork {
  DirectRequest request;  // of an all-to-all no more than its type
  bool sums = true;       // false: an all-to-all, whose receives go to the user's memory
  Block own;
  std::vector<PeerSend> sends;
  std::vector<PeerReceive> receives;
  bool sends_begun = false;
  bool receives_begun = false;
  bool sent = false;
  bool received = false;
  std::vector<std::byte> contributions;  // where receives go: the own block of each other rank, in their order
  std::vector<std::vector<ElementRange>> missing;  // by rank
  std::size_t reduced = 0;                         // elements of the own block
  bool reduction_done = false;
};

// Stays where it is: the plugin holds phandles into it.
struct Operation {
  CollectiveRequest request;               // of a direct all-reduce: the all-gather of its sums
  std::unique_ptr<ExchangeWork> exchange;  // null: none
  Protocol protocol = Protocol::kSimple;
  TaskEvents events;
  StepShape shape;
  bool record_steps = false;
  std::chrono::steady_clock::time_point started_at;
  std::vector<ChannelWork> channels;
  std::vector<GroupWork> groups;
  bool kernel_done = false;
  CollectiveStats stats;
  std::shared_ptr<Completion> completion = std::make_shared<Completion>();
};

}  // namespace clustar::bench::proxy
