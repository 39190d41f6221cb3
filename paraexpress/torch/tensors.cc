#include "paraexpress/torch/tensors.h"

#include <c10/util/Exception.h>

#include <cstring>

namespace clustar::torch_backend {
namespace {

using c10d::ReduceOp;
using paraexpress::DataType;
using paraexpress::Reduction;

std::optional<DataType> engine_type(at::ScalarType type) {
  switch (type) {
    case at::kByte: return DataType::kUint8;
    case at::kChar: return DataType::kInt8;
    case at::kInt: return DataType::kInt32;
    case at::kLong: return DataType::kInt64;
    case at::kHalf: return DataType::kFloat16;
    case at::kFloat: return DataType::kFloat32;
    case at::kDouble: return DataType::kFloat64;
    case at::kBFloat16: return DataType::kBfloat16;
    default: return std::nullopt;
  }
}

}  // namespace

void check_tensor(const char* name, const at::Tensor& tensor) {
  TORCH_CHECK(tensor.defined(), name, ": an undefined tensor; allowed: dense CPU tensors");
  TORCH_CHECK(tensor.layout() == at::kStrided, name, ": a tensor of layout ", tensor.layout(),
              "; allowed: dense (strided) CPU tensors");
  TORCH_CHECK(tensor.device().is_cpu(), name, ": a tensor on ", tensor.device(),
              "; allowed: CPU tensors, .cpu() makes one");
}

void check_tensors(const char* name, const std::vector<at::Tensor>& tensors, bool sizes) {
  TORCH_CHECK(!tensors.empty(), name, ": no tensor; allowed: 1 or more");
  for (const at::Tensor& tensor : tensors) {
    check_tensor(name, tensor);
    TORCH_CHECK(tensor.scalar_type() == tensors[0].scalar_type(), name, ": tensors of types ", tensors[0].scalar_type(),
                " and ", tensor.scalar_type(), "; allowed: all of one type");
    TORCH_CHECK(!sizes || tensor.numel() == tensors[0].numel(), name, ": tensors of sizes ", tensors[0].sizes(),
                " and ", tensor.sizes(), "; allowed: all of one size");
  }
}

const at::Tensor& only(const char* name, const std::vector<at::Tensor>& tensors) {
  TORCH_CHECK(tensors.size() == 1, name, ": ", tensors.size(), " tensors; allowed: 1 per rank");
  check_tensor(name, tensors[0]);
  return tensors[0];
}

at::Tensor view(std::byte* memory, const at::Tensor& like) {
  return at::from_blob(memory, like.sizes(), at::TensorOptions().dtype(like.scalar_type()));
}

void copy_out(const at::Tensor& tensor, std::byte* memory) {
  if (tensor.numel() == 0) return;
  if (tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg()) {
    std::memcpy(memory, tensor.data_ptr(), tensor.nbytes());
    return;
  }
  const at::NoGradGuard no_grad;
  view(memory, tensor).copy_(tensor);
}

void copy_in(const std::byte* memory, const at::Tensor& tensor) {
  if (tensor.numel() == 0) return;
  if (tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg()) {
    std::memcpy(tensor.data_ptr(), memory, tensor.nbytes());
    return;
  }
  const at::NoGradGuard no_grad;
  tensor.detach().copy_(view(const_cast<std::byte*>(memory), tensor));
}

ReductionPlan plan_reduction(const char* name, const ReduceOp& op, at::ScalarType type) {
  ReductionPlan plan;
  const bool real = at::isFloatingType(type), complex = at::isComplexType(type);
  TORCH_CHECK(type != at::kComplexHalf && !at::isQIntType(type), name, ": elements of type ", type,
              "; allowed: bool, integers, floats, complex floats and doubles");
  plan.type = type == at::kBool ? DataType::kUint8 : engine_type(complex ? at::toRealValueType(type) : type);
  if (complex) plan.parts = 2;
  switch (op) {
    case ReduceOp::SUM:
      // As torch.sum() of bools, but as a bool: whether there is one.
      if (type == at::kBool) plan.reduction = Reduction::kMax;
      return plan;
    case ReduceOp::AVG:
      TORCH_CHECK(real || complex, name, ": the average of ", type, "; allowed: of floats");
      plan.averages = true;
      return plan;
    case ReduceOp::MIN:
    case ReduceOp::MAX:
      TORCH_CHECK(!complex, name, ": complex numbers have no order; allowed: sum, avg, product");
      plan.reduction = Reduction::kMax;
      plan.complements = op == ReduceOp::MIN;
      return plan;
    case ReduceOp::BAND:
    case ReduceOp::BOR:
    case ReduceOp::BXOR:
      TORCH_CHECK(!real && !complex, name, ": bits of ", type, "; allowed: of integers and bools");
      plan.type.reset();
      return plan;
    case ReduceOp::PRODUCT: plan.type.reset(); return plan;
    default: break;
  }
  TORCH_CHECK(false, name,
              ": this reduction is not offered; allowed: SUM, AVG, MIN, MAX, PRODUCT, BAND, "
              "BOR, BXOR");
}

void complement(at::Tensor elements) {
  const at::NoGradGuard no_grad;
  if (elements.scalar_type() == at::kBool) {
    elements.logical_not_();
  } else if (at::isFloatingType(elements.scalar_type())) {
    elements.neg_();
  } else {
    elements.bitwise_not_();
  }
}

void fold(at::Tensor into, const at::Tensor& other, const ReduceOp& op) {
  const at::NoGradGuard no_grad;
  switch (op) {
    case ReduceOp::SUM: into.add_(other); return;
    case ReduceOp::MIN: at::minimum_out(into, into, other); return;
    case ReduceOp::MAX: at::maximum_out(into, into, other); return;
    case ReduceOp::PRODUCT:
      if (into.scalar_type() == at::kBool) {
        into.logical_and_(other);
      } else {
        into.mul_(other);
      }
      return;
    case ReduceOp::BAND: into.bitwise_and_(other); return;
    case ReduceOp::BOR: into.bitwise_or_(other); return;
    case ReduceOp::BXOR: into.bitwise_xor_(other); return;
    default: TORCH_INTERNAL_ASSERT(false);
  }
}

}  // namespace clustar::torch_backend
