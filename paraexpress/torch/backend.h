// The process group that c10d sees. Up to PyTorch 1.13 that is a c10d::ProcessGroup, from 2.0 on a c10d::Backend.
#pragma once

#include <torch/csrc/api/include/torch/version.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "paraexpress/api/own_transport.h"
#include "paraexpress/communicator/communicator.h"
#include "paraexpress/torch/tensors.h"
#include "paraexpress/torch/work.h"

#if TORCH_VERSION_MAJOR >= 2
#include <torch/csrc/distributed/c10d/Backend.hpp>
#endif

namespace clustar::torch_backend {

#if TORCH_VERSION_MAJOR >= 2
using Base = c10d::Backend;
#else
using Base = c10d::ProcessGroup;
#endif
using Tensors = std::vector<at::Tensor>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

// Thread rule: any thread; collectives in the same order on all ranks. Errors of the call are thrown by it, those of
// the operation by the work's wait().
class Backend : public Base {
 public:
  using Timeout = std::chrono::milliseconds;

  // Blocks until all ranks are connected; throws why not.
  Backend(c10::intrusive_ptr<c10d::Store> store, int rank, int size, Timeout timeout);
  ~Backend() override;
  const std::string getBackendName() const override { return "clustar"; }
  // All operations under way fail, on all ranks.
  void abort_all(const std::string& why) { communicator_->abort(why); }
  // Without Python's lock. Operations under way fail. Nothing in the child of a fork.
  void close();

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override;
  WorkPtr allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                              const c10d::AllgatherOptions& options) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override;
  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& options) override;
  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& options) override;
  WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                         const c10d::ReduceScatterOptions& options) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<std::int64_t>& output_splits,
                        std::vector<std::int64_t>& input_splits, const c10d::AllToAllOptions& options) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override;
  WorkPtr send(Tensors& tensors, int to, int tag) override;
  WorkPtr recv(Tensors& tensors, int from, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;
  WorkPtr barrier(const c10d::BarrierOptions& options) override;
  // Blocks. Rank 0 throws which rank did not come, the first or, with `wait_all_ranks`, all; the others throw that it
  // did not answer. The group goes on; ranks call it equally often.
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override;

 private:
  // What all operations have in common.
  struct Call {
    const char* name;
    c10d::OpType type;
    Timeout timeout;
  };
  WorkPtr start(const Call& call, paraexpress::Task task, const Tensors& inputs, Tensors outputs);
  // Sums of `tensors`, one after the other as one buffer; the results are copied into them where `keeps`.
  WorkPtr reduce_all(const Call& call, const Tensors& tensors, const c10d::ReduceOp& op, bool keeps);
  WorkPtr fold_all(const Call& call, const Tensors& tensors, const c10d::ReduceOp& op, bool keeps);
  // Of `size` inputs the reduction of the own one comes into `output`.
  WorkPtr reduce_scattered(const Call& call, const at::Tensor& output, const Tensors& inputs, const c10d::ReduceOp& op);
  WorkPtr gather_all(const Call& call, const Tensors& outputs, const at::Tensor& input);
  // Input i goes to rank i, output i comes from there.
  WorkPtr exchange(const Call& call, const Tensors& outputs, const Tensors& inputs);
  WorkPtr receive(const Call& call, const Tensors& tensors, paraexpress::Member from, int tag);
  void check_root(const char* name, std::int64_t root) const;

  std::unique_ptr<paraexpress::OwnTransport> transport_{};  // outlives the communicator
  std::unique_ptr<paraexpress::Communicator> communicator_{};
  const Timeout timeout_;
  const pid_t process_;                      // that made it: in the child of a fork its thread does not exist
  std::mutex order_{};                       // of the starts
  std::atomic<std::uint64_t> monitored_{0};  // barriers
};

// Of the process, in any order: closes those that are there. Without Python's lock.
void close_all();

}  // namespace clustar::torch_backend
