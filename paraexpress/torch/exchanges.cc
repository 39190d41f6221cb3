// Of Backend: messages between pairs of ranks, alone and as collectives.
#include <c10/util/Exception.h>

#include <numeric>
#include <utility>

#include "paraexpress/torch/backend.h"

namespace clustar::torch_backend {
namespace {

using paraexpress::Member;
using paraexpress::Task;
using paraexpress::TaskKind;
using paraexpress::Use;

std::int64_t rows_of(const at::Tensor& tensor) { return tensor.dim() == 0 ? 1 : tensor.size(0); }

// Parts of the first dimension, as many as ranks; equal ones where nothing is said.
Tensors split(const char* name, const char* which, const at::Tensor& tensor, const std::vector<std::int64_t>& splits,
              int ranks) {
  check_tensor(name, tensor);
  std::vector<std::int64_t> sizes = splits;
  if (sizes.empty()) {
    TORCH_CHECK(rows_of(tensor) % ranks == 0, name, ": ", rows_of(tensor), " rows of the ", which, " for ", ranks,
                " ranks; allowed: a multiple, or sizes of the splits");
    sizes.assign(static_cast<std::size_t>(ranks), rows_of(tensor) / ranks);
  }
  TORCH_CHECK(static_cast<int>(sizes.size()) == ranks, name, ": ", sizes.size(), " splits of the ", which,
              "; allowed: one per rank, ", ranks);
  const auto all = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
  for (const std::int64_t size : sizes) {
    TORCH_CHECK(size >= 0, name, ": a split of ", size, " rows; allowed: 0 and more");
  }
  TORCH_CHECK(all == rows_of(tensor), name, ": splits of ", all, " rows in all, where the ", which, " has ",
              rows_of(tensor), "; allowed: all rows");
  if (tensor.dim() == 0) return {tensor};
  const auto views = tensor.detach().split_with_sizes(sizes, 0);
  return {views.begin(), views.end()};
}

}  // namespace

WorkPtr Backend::gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& options) {
  const Call call{"clustar:gather", c10d::OpType::GATHER, options.timeout};
  const at::Tensor input = only(call.name, inputs);
  check_root(call.name, options.rootRank);
  const auto rank = static_cast<Member>(getRank()), root = static_cast<Member>(options.rootRank);
  const std::size_t each = input.nbytes();
  Task task;
  task.kind = TaskKind::kExchange;
  task.use = Use::kGather;
  task.root = root;
  if (rank != root) {
    TORCH_CHECK(outputs.empty(), "clustar:gather: outputs at rank ", rank, "; allowed: at the root, rank ", root);
    task.staged = each;
    task.fill = [input](std::byte* memory) { copy_out(input, memory); };
    task.transfers = {{true, root, 0, each}};
    return start(call, std::move(task), inputs, {});
  }
  TORCH_CHECK(outputs.size() == 1 && static_cast<int>(outputs[0].size()) == getSize(),
              "clustar:gather: the root's outputs are not one list of ", getSize(), " tensors, one per rank");
  check_tensors(call.name, outputs[0], true);
  check_tensors(call.name, {outputs[0][0], input}, true);
  task.staged = each * outputs[0].size();
  for (Member peer = 0; peer < outputs[0].size(); ++peer) {
    if (peer != rank) task.transfers.push_back({false, peer, peer * each, each});
  }
  task.fill = [input, at = rank * each](std::byte* memory) { copy_out(input, memory + at); };
  task.take = [all = outputs[0], each](std::byte* memory) {
    for (std::size_t i = 0; i < all.size(); ++i) copy_in(memory + i * each, all[i]);
  };
  return start(call, std::move(task), inputs, outputs[0]);
}

WorkPtr Backend::scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& options) {
  const Call call{"clustar:scatter", c10d::OpType::SCATTER, options.timeout};
  const at::Tensor output = only(call.name, outputs);
  check_root(call.name, options.rootRank);
  const auto rank = static_cast<Member>(getRank()), root = static_cast<Member>(options.rootRank);
  const std::size_t each = output.nbytes();
  Task task;
  task.kind = TaskKind::kExchange;
  task.use = Use::kScatter;
  task.root = root;
  task.take = [output, at = rank == root ? rank * each : 0](std::byte* memory) { copy_in(memory + at, output); };
  if (rank != root) {
    TORCH_CHECK(inputs.empty(), "clustar:scatter: inputs at rank ", rank, "; allowed: at the root, rank ", root);
    task.staged = each;
    task.transfers = {{false, root, 0, each}};
    return start(call, std::move(task), {}, outputs);
  }
  TORCH_CHECK(inputs.size() == 1 && static_cast<int>(inputs[0].size()) == getSize(),
              "clustar:scatter: the root's inputs are not one list of ", getSize(), " tensors, one per rank");
  check_tensors(call.name, inputs[0], true);
  check_tensors(call.name, {inputs[0][0], output}, true);
  task.staged = each * inputs[0].size();
  for (Member peer = 0; peer < inputs[0].size(); ++peer) {
    if (peer != rank) task.transfers.push_back({true, peer, peer * each, each});
  }
  task.fill = [all = inputs[0], each](std::byte* memory) {
    for (std::size_t i = 0; i < all.size(); ++i) copy_out(all[i], memory + i * each);
  };
  return start(call, std::move(task), inputs[0], outputs);
}

WorkPtr Backend::alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<std::int64_t>& output_splits,
                               std::vector<std::int64_t>& input_splits, const c10d::AllToAllOptions& options) {
  const Call call{"clustar:all_to_all_single", c10d::OpType::ALLTOALL_BASE, options.timeout};
  check_tensors(call.name, {output, input}, false);
  return exchange(call, split(call.name, "output", output, output_splits, getSize()),
                  split(call.name, "input", input, input_splits, getSize()));
}

WorkPtr Backend::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) {
  const Call call{"clustar:all_to_all", c10d::OpType::ALLTOALL, options.timeout};
  for (const Tensors* list : {&outputs, &inputs}) {
    TORCH_CHECK(static_cast<int>(list->size()) == getSize(), "clustar:all_to_all: ", list->size(),
                " tensors; allowed: one per rank, ", getSize());
    check_tensors(call.name, *list, false);
  }
  return exchange(call, outputs, inputs);
}

WorkPtr Backend::exchange(const Call& call, const Tensors& outputs, const Tensors& inputs) {
  const auto self = static_cast<Member>(getRank());
  TORCH_CHECK(outputs[self].nbytes() == inputs[self].nbytes(), call.name, ": this rank sends itself ",
              inputs[self].nbytes(), " bytes and expects ", outputs[self].nbytes(), "; allowed: the same");
  Task task;
  task.kind = TaskKind::kExchange;
  task.use = Use::kAllToAll;
  std::vector<std::size_t> sent, received;
  for (Member peer = 0; peer < inputs.size(); ++peer) {
    if (peer != self) task.transfers.push_back({true, peer, task.staged, inputs[peer].nbytes()});
    sent.push_back(task.staged);
    task.staged += inputs[peer].nbytes();
  }
  for (Member peer = 0; peer < outputs.size(); ++peer) {
    if (peer != self) task.transfers.push_back({false, peer, task.staged, outputs[peer].nbytes()});
    received.push_back(peer == self ? sent[self] : task.staged);
    if (peer != self) task.staged += outputs[peer].nbytes();
  }
  task.fill = [inputs, sent](std::byte* memory) {
    for (std::size_t i = 0; i < inputs.size(); ++i) copy_out(inputs[i], memory + sent[i]);
  };
  task.take = [outputs, received](std::byte* memory) {
    for (std::size_t i = 0; i < outputs.size(); ++i) copy_in(memory + received[i], outputs[i]);
  };
  return start(call, std::move(task), inputs, outputs);
}

WorkPtr Backend::send(Tensors& tensors, int to, int tag) {
  const Call call{"clustar:send", c10d::OpType::SEND, {}};
  const at::Tensor tensor = only(call.name, tensors);
  TORCH_CHECK(to >= 0 && to < getSize() && to != getRank(), "clustar:send to rank ", to, "; allowed: 0 to ",
              getSize() - 1, ", but not ", getRank(), ", this rank");
  TORCH_CHECK(tag >= 0, "clustar:send with tag ", tag, "; allowed: 0 and more");
  Task task;
  task.kind = TaskKind::kMessage;
  task.tag = static_cast<std::uint64_t>(tag);
  task.staged = tensor.nbytes();
  task.transfers = {{true, static_cast<Member>(to), 0, tensor.nbytes()}};
  task.fill = [tensor](std::byte* memory) { copy_out(tensor, memory); };
  return start(call, std::move(task), tensors, tensors);
}

WorkPtr Backend::receive(const Call& call, const Tensors& tensors, Member from, int tag) {
  const at::Tensor tensor = only(call.name, tensors);
  TORCH_CHECK(tag >= 0, call.name, " with tag ", tag, "; allowed: 0 and more");
  Task task;
  task.kind = TaskKind::kMessage;
  task.tag = static_cast<std::uint64_t>(tag);
  task.staged = tensor.nbytes();
  task.transfers = {{false, from, 0, tensor.nbytes()}};
  task.take = [tensor](std::byte* memory) { copy_in(memory, tensor); };
  return start(call, std::move(task), tensors, tensors);
}

WorkPtr Backend::recv(Tensors& tensors, int from, int tag) {
  TORCH_CHECK(from >= 0 && from < getSize() && from != getRank(), "clustar:recv from rank ", from, "; allowed: 0 to ",
              getSize() - 1, ", but not ", getRank(), ", this rank");
  return receive({"clustar:recv", c10d::OpType::RECV, {}}, tensors, static_cast<Member>(from), tag);
}

WorkPtr Backend::recvAnysource(Tensors& tensors, int tag) {
  return receive({"clustar:recv", c10d::OpType::RECVANYSOURCE, {}}, tensors, paraexpress::kAnyMember, tag);
}

}  // namespace clustar::torch_backend
