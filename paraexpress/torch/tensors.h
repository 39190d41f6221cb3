// Tensors as the bytes that go over the network, and what may be done with them there.
#pragma once

#include <ATen/ATen.h>

#include <cstddef>
#include <functional>
#include <optional>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <vector>

#include "paraexpress/sums/reduce.h"

namespace clustar::torch_backend {

// Throws what is wrong, with the operation's name: a dense tensor in host memory is allowed.
void check_tensor(const char* name, const at::Tensor& tensor);
// The same for each, of one type and, with `sizes`, as many elements as the first.
void check_tensors(const char* name, const std::vector<at::Tensor>& tensors, bool sizes);
// Throws unless there is exactly one.
const at::Tensor& only(const char* name, const std::vector<at::Tensor>& tensors);

// Elements one after the other, whatever the tensor's strides. `memory` may be null for an empty tensor.
void copy_out(const at::Tensor& tensor, std::byte* memory);
void copy_in(const std::byte* memory, const at::Tensor& tensor);
// The memory as a tensor of such elements and sizes.
at::Tensor view(std::byte* memory, const at::Tensor& like);

// How a reduction of such elements is done.
struct ReductionPlan {
  // By the engine, as so many elements of this type. Nothing: all elements are gathered, and each rank folds them.
  std::optional<paraexpress::DataType> type{};
  paraexpress::Reduction reduction = paraexpress::Reduction::kSum;
  std::size_t parts = 1;     // of an element: a complex number has two
  bool complements = false;  // the least of numbers is the complement of the greatest of their complements
  bool averages = false;
};
// Throws what is not offered.
ReductionPlan plan_reduction(const char* name, const c10d::ReduceOp& op, at::ScalarType type);
void complement(at::Tensor elements);
// into = into op other, for what the engine does not do.
void fold(at::Tensor into, const at::Tensor& other, const c10d::ReduceOp& op);

}  // namespace clustar::torch_backend
