// Of Backend: what adds up.
#include <c10/util/Exception.h>

#include <memory>
#include <utility>

#include "paraexpress/torch/backend.h"

namespace clustar::torch_backend {
namespace {

using paraexpress::Task;
using paraexpress::TaskKind;

std::size_t elements_of(const Tensors& tensors) {
  std::size_t all = 0;
  for (const at::Tensor& tensor : tensors) all += static_cast<std::size_t>(tensor.numel());
  return all;
}

// `count` elements of this type.
at::Tensor elements_at(std::byte* memory, std::size_t count, at::ScalarType type) {
  return at::from_blob(memory, {static_cast<std::int64_t>(count)}, at::TensorOptions().dtype(type));
}

void copy_all_out(const Tensors& tensors, std::byte* memory) {
  for (const at::Tensor& tensor : tensors) {
    copy_out(tensor, memory);
    memory += tensor.nbytes();
  }
}

void copy_all_in(std::byte* memory, const Tensors& tensors) {
  for (const at::Tensor& tensor : tensors) {
    copy_in(memory, tensor);
    memory += tensor.nbytes();
  }
}

// Before the elements go out, and when their reduction came.
void prepare(const ReductionPlan& plan, const at::Tensor& elements) {
  if (plan.complements && elements.numel() > 0) complement(elements);
}
void conclude(const ReductionPlan& plan, at::Tensor elements, int ranks) {
  prepare(plan, elements);
  if (plan.averages && elements.numel() > 0) elements.div_(ranks);
}

}  // namespace

WorkPtr Backend::reduce_all(const Call& call, const Tensors& tensors, const c10d::ReduceOp& op, bool keeps) {
  const at::ScalarType type = tensors[0].scalar_type();
  const ReductionPlan plan = plan_reduction(call.name, op, type);
  if (!plan.type) return fold_all(call, tensors, op, keeps);
  const std::size_t count = elements_of(tensors), bytes = count * tensors[0].element_size();
  Task task;
  task.kind = TaskKind::kAllReduce;
  task.staged = bytes;
  task.count = count * plan.parts;
  task.type = *plan.type;
  task.reduction = plan.reduction;
  task.fill = [tensors, plan, count, type](std::byte* memory) {
    copy_all_out(tensors, memory);
    prepare(plan, elements_at(memory, count, type));
  };
  if (keeps) {
    task.take = [tensors, plan, count, type, ranks = getSize()](std::byte* memory) {
      conclude(plan, elements_at(memory, count, type), ranks);
      copy_all_in(memory, tensors);
    };
  }
  return start(call, std::move(task), tensors, tensors);
}

WorkPtr Backend::fold_all(const Call& call, const Tensors& tensors, const c10d::ReduceOp& op, bool keeps) {
  const at::ScalarType type = tensors[0].scalar_type();
  const std::size_t count = elements_of(tensors), bytes = count * tensors[0].element_size();
  Task task;
  task.kind = TaskKind::kAllGather;
  task.staged = bytes * static_cast<std::size_t>(getSize());
  task.count = bytes;
  task.fill = [tensors, at = bytes * static_cast<std::size_t>(getRank())](std::byte* memory) {
    copy_all_out(tensors, memory + at);
  };
  if (keeps && count > 0) {
    task.take = [tensors, op, count, bytes, type, ranks = static_cast<std::size_t>(getSize())](std::byte* memory) {
      for (std::size_t rank = 1; rank < ranks; ++rank) {
        fold(elements_at(memory, count, type), elements_at(memory + rank * bytes, count, type), op);
      }
      copy_all_in(memory, tensors);
    };
  }
  return start(call, std::move(task), tensors, tensors);
}

WorkPtr Backend::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                const c10d::ReduceScatterOptions& options) {
  const Call call{"clustar:reduce_scatter", c10d::OpType::REDUCE_SCATTER, options.timeout};
  const at::Tensor& output = only(call.name, outputs);
  TORCH_CHECK(inputs.size() == 1 && static_cast<int>(inputs[0].size()) == getSize(),
              "clustar:reduce_scatter: the inputs are not one list of ", getSize(), " tensors, one per rank");
  return reduce_scattered(call, output, inputs[0], options.reduceOp);
}

WorkPtr Backend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                      const c10d::ReduceScatterOptions& options) {
  const Call call{"clustar:reduce_scatter_tensor", c10d::OpType::_REDUCE_SCATTER_BASE, options.timeout};
  check_tensors(call.name, {output, input}, false);
  TORCH_CHECK(input.numel() == output.numel() * getSize(), "clustar:reduce_scatter_tensor: an input of ", input.numel(),
              " elements; allowed: ", getSize(), " times the output's ", output.numel());
  return reduce_scattered(call, output, {input}, options.reduceOp);
}

// The inputs are all ranks' blocks, one after the other: as many tensors, or one.
WorkPtr Backend::reduce_scattered(const Call& call, const at::Tensor& output, const Tensors& inputs,
                                  const c10d::ReduceOp& op) {
  check_tensors(call.name, inputs, true);
  check_tensors(call.name, {inputs[0], output}, inputs.size() > 1);
  const at::ScalarType type = output.scalar_type();
  const ReductionPlan plan = plan_reduction(call.name, op, type);
  const auto ranks = static_cast<std::size_t>(getSize()), rank = static_cast<std::size_t>(getRank());
  const auto block = static_cast<std::size_t>(output.numel());
  const std::size_t bytes = output.nbytes();
  Task task;
  if (!plan.type) {
    task.kind = TaskKind::kAllGather;
    task.staged = bytes * ranks * ranks;
    task.count = bytes * ranks;
    task.fill = [inputs, at = bytes * ranks * rank](std::byte* memory) { copy_all_out(inputs, memory + at); };
    task.take = [=](std::byte* memory) {
      if (block == 0) return;
      const auto of = [&](std::size_t other) {
        return elements_at(memory + (other * ranks + rank) * bytes, block, type);
      };
      for (std::size_t other = 1; other < ranks; ++other) fold(of(0), of(other), op);
      copy_in(memory + rank * bytes, output);
    };
    return start(call, std::move(task), inputs, {output});
  }
  task.kind = TaskKind::kReduceScatter;
  task.staged = bytes * ranks;
  task.count = block * plan.parts;
  task.type = *plan.type;
  task.reduction = plan.reduction;
  task.fill = [=](std::byte* memory) {
    copy_all_out(inputs, memory);
    prepare(plan, elements_at(memory, block * ranks, type));
  };
  task.take = [=](std::byte* memory) {
    conclude(plan, elements_at(memory + rank * bytes, block, type), static_cast<int>(ranks));
    copy_in(memory + rank * bytes, output);
  };
  return start(call, std::move(task), inputs, {output});
}

}  // namespace clustar::torch_backend
