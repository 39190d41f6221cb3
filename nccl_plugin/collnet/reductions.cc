#include "nccl_plugin/collnet/reductions.h"

#include "nccl_plugin/abi/collnet.h"

namespace clustar::nccl_plugin {

// paraexpress::DataType has NCCL's numbers.
static_assert(static_cast<int>(paraexpress::DataType::kInt8) == nccl_abi::kInt8);
static_assert(static_cast<int>(paraexpress::DataType::kUint64) == nccl_abi::kUint64);
static_assert(static_cast<int>(paraexpress::DataType::kFloat16) == nccl_abi::kFloat16);
static_assert(static_cast<int>(paraexpress::DataType::kFloat64) == nccl_abi::kFloat64);
static_assert(static_cast<int>(paraexpress::DataType::kBfloat16) == nccl_abi::kBfloat16);

std::optional<Arithmetic> arithmetic_of(int data_type, int red_op) {
  if (data_type < 0 || data_type >= static_cast<int>(paraexpress::kDataTypes)) return std::nullopt;
  const auto type = static_cast<paraexpress::DataType>(data_type);
  if (red_op == nccl_abi::kSum) return Arithmetic{type, paraexpress::Reduction::kSum};
  if (red_op == nccl_abi::kMax) return Arithmetic{type, paraexpress::Reduction::kMax};
  return std::nullopt;
}

const char* offered_reductions() { return "sum, avg and max of 8 to 64 bit integers, f16, bf16, f32 and f64"; }

}  // namespace clustar::nccl_plugin
