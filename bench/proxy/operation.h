// One collective from start to completion: what the user asked for and how far each channel is.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "bench/proxy/comm_profiler.h"
#include "bench/proxy/communicator.h"
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

// Stays where it is: the plugin holds phandles into it.
struct Operation {
  CollectiveRequest request;
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
