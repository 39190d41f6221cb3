#include "paraexpress/torch/backend.h"

#include <ATen/MemoryOverlap.h>
#include <c10/util/Exception.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <utility>

#include "paraexpress/torch/meeting.h"

namespace clustar::torch_backend {
namespace {

using paraexpress::Task;
using paraexpress::TaskKind;

// Those that are not closed. Never destroyed: Python may drop groups while the process ends.
struct Living {
  std::mutex mutex{};
  std::set<Backend*> all{};
};
Living& living() {
  static auto* const one = new Living;
  return *one;
}

// A user may mean "no timeout" by one that no clock can count to.
Backend::Timeout bounded(Backend::Timeout timeout) {
  constexpr Backend::Timeout kLongest = std::chrono::hours(24 * 365 * 10);
  return std::min(timeout, kLongest);
}

}  // namespace

Backend::Backend(c10::intrusive_ptr<c10d::Store> store, int rank, int size, Timeout timeout)
    : Base(rank, size), timeout_(bounded(timeout)), process_(getpid()) {
  const auto throw_error = [](const Error& error) { TORCH_CHECK(false, "clustar: ", error.message); };
  auto transport = paraexpress::OwnTransport::choose(rank);
  if (!transport) throw_error(transport.error());
  transport_ = std::move(*transport);
  paraexpress::CommunicatorOptions options;
  options.rank = static_cast<paraexpress::Member>(rank);
  options.ranks = static_cast<std::uint32_t>(size);
  options.device = transport_->device();
  options.job = transport_->job();
  options.setup = timeout_;
  auto made = paraexpress::Communicator::create(transport_->transport(),
                                                meet_at(std::move(store), rank, size, timeout_), options);
  if (!made) throw_error(made.error());
  communicator_ = std::move(*made);
#if TORCH_VERSION_MAJOR < 2
  init();
#endif
  const std::lock_guard lock(living().mutex);
  living().all.insert(this);
}

Backend::~Backend() {
  close();
  if (getpid() == process_) return;
  (void)communicator_.release();
  (void)transport_.release();
}

void Backend::close() {
  {
    const std::lock_guard lock(living().mutex);
    living().all.erase(this);
  }
  if (communicator_ != nullptr && getpid() == process_) communicator_->close();
}

void close_all() {
  for (;;) {
    Backend* one = nullptr;
    {
      const std::lock_guard lock(living().mutex);
      if (living().all.empty()) return;
      one = *living().all.begin();
    }
    one->close();
  }
}

WorkPtr Backend::start(const Call& call, Task task, const Tensors& inputs, Tensors outputs) {
  for (const at::Tensor& output : outputs) {
    TORCH_CHECK(!task.take || at::has_internal_overlap(output) != at::MemOverlap::Yes, call.name,
                ": an output whose elements share memory, as expand() makes them; allowed: others, clone() makes one");
  }
  const Timeout timeout = call.timeout > Timeout::zero() ? call.timeout : timeout_;
  auto work = c10::make_intrusive<Work>(getRank(), call.type, call.name, inputs, std::move(outputs));
  task.name = call.name;
  task.deadline = std::chrono::steady_clock::now() + bounded(timeout);
  task.ended = [work](const Result<paraexpress::Member>& outcome) { work->complete(outcome); };
  const std::lock_guard lock(order_);
  communicator_->start(std::move(task));
  return work;
}

void Backend::check_root(const char* name, std::int64_t root) const {
  TORCH_CHECK(root >= 0 && root < getSize(), name, ": root ", root, "; allowed: 0 to ", getSize() - 1);
}

WorkPtr Backend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  const Call call{"clustar:broadcast", c10d::OpType::BROADCAST, options.timeout};
  const at::Tensor tensor = only(call.name, tensors);
  check_root(call.name, options.rootRank);
  Task task;
  task.kind = TaskKind::kBroadcast;
  task.staged = tensor.nbytes();
  task.count = tensor.nbytes();
  task.root = static_cast<paraexpress::Member>(options.rootRank);
  if (options.rootRank == getRank()) {
    task.fill = [tensor](std::byte* memory) { copy_out(tensor, memory); };
  } else {
    task.take = [tensor](std::byte* memory) { copy_in(memory, tensor); };
  }
  return start(call, std::move(task), tensors, tensors);
}

WorkPtr Backend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  const Call call{"clustar:all_reduce", c10d::OpType::ALLREDUCE, options.timeout};
  only(call.name, tensors);
  return reduce_all(call, tensors, options.reduceOp, true);
}

WorkPtr Backend::allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  const Call call{"clustar:all_reduce_coalesced", c10d::OpType::ALLREDUCE_COALESCED, options.timeout};
  check_tensors(call.name, tensors, false);
  return reduce_all(call, tensors, options.reduceOp, true);
}

WorkPtr Backend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  const Call call{"clustar:reduce", c10d::OpType::REDUCE, options.timeout};
  only(call.name, tensors);
  check_root(call.name, options.rootRank);
  return reduce_all(call, tensors, options.reduceOp, options.rootRank == getRank());
}

WorkPtr Backend::allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  const Call call{"clustar:all_gather", c10d::OpType::ALLGATHER, options.timeout};
  const at::Tensor& input = only(call.name, inputs);
  TORCH_CHECK(outputs.size() == 1, "clustar:all_gather: ", outputs.size(), " lists of outputs; allowed: 1");
  return gather_all(call, outputs[0], input);
}

WorkPtr Backend::allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                     const c10d::AllgatherOptions& options) {
  const Call call{"clustar:all_gather_coalesced", c10d::OpType::ALLGATHER_COALESCED, options.timeout};
  TORCH_CHECK(static_cast<int>(outputs.size()) == getSize(), call.name, ": ", outputs.size(),
              " lists of outputs; allowed: one per rank, ", getSize());
  std::size_t each = 0;
  for (const at::Tensor& input : inputs) {
    check_tensor(call.name, input);
    each += input.nbytes();
  }
  Tensors all;
  for (const Tensors& list : outputs) {
    TORCH_CHECK(list.size() == inputs.size(), call.name, ": ", list.size(),
                " outputs in a list; allowed: one per input, ", inputs.size());
    for (std::size_t i = 0; i < list.size(); ++i) check_tensors(call.name, {inputs[i], list[i]}, true);
    all.insert(all.end(), list.begin(), list.end());
  }
  Task task;
  task.kind = TaskKind::kAllGather;
  task.staged = each * outputs.size();
  task.count = each;
  task.fill = [inputs, at = each * static_cast<std::size_t>(getRank())](std::byte* memory) {
    memory += at;
    for (const at::Tensor& input : inputs) {
      copy_out(input, memory);
      memory += input.nbytes();
    }
  };
  task.take = [all](const std::byte* memory) {
    for (const at::Tensor& output : all) {
      copy_in(memory, output);
      memory += output.nbytes();
    }
  };
  return start(call, std::move(task), inputs, all);
}

WorkPtr Backend::_allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) {
  const Call call{"clustar:all_gather_into_tensor", c10d::OpType::_ALLGATHER_BASE, options.timeout};
  check_tensors(call.name, {output, input}, false);
  TORCH_CHECK(output.numel() == input.numel() * getSize(), "clustar:all_gather_into_tensor: an output of ",
              output.numel(), " elements; allowed: ", getSize(), " times the input's ", input.numel());
  Task task;
  task.kind = TaskKind::kAllGather;
  task.staged = output.nbytes();
  task.count = input.nbytes();
  task.fill = [input, at = input.nbytes() * static_cast<std::size_t>(getRank())](std::byte* memory) {
    copy_out(input, memory + at);
  };
  task.take = [output](std::byte* memory) { copy_in(memory, output); };
  return start(call, std::move(task), {input}, {output});
}

WorkPtr Backend::gather_all(const Call& call, const Tensors& outputs, const at::Tensor& input) {
  check_tensors(call.name, outputs, true);
  check_tensors(call.name, {outputs[0], input}, true);
  TORCH_CHECK(static_cast<int>(outputs.size()) == getSize(), call.name, ": ", outputs.size(),
              " outputs; allowed: one per rank, ", getSize());
  const std::size_t each = input.nbytes();
  Task task;
  task.kind = TaskKind::kAllGather;
  task.staged = each * outputs.size();
  task.count = each;
  task.fill = [input, at = each * static_cast<std::size_t>(getRank())](std::byte* memory) {
    copy_out(input, memory + at);
  };
  task.take = [outputs, each](std::byte* memory) {
    for (std::size_t i = 0; i < outputs.size(); ++i) copy_in(memory + i * each, outputs[i]);
  };
  return start(call, std::move(task), {input}, outputs);
}

}  // namespace clustar::torch_backend
