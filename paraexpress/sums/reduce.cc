#include "paraexpress/sums/reduce.h"

#include <algorithm>
#include <cstddef>

#include "paraexpress/sums/kernels.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace clustar::paraexpress {
namespace {

// Of a result. One that long is not in the caches any more when it is read, so writing past them saves fetching what
// will be overwritten.
constexpr std::size_t kStreamBytes = std::size_t{8} << 20;

const Kernels& kernels_of(InstructionSet set) {
#if defined(__x86_64__)
  if (set == InstructionSet::kAvx512) return kAvx512Kernels;
  if (set == InstructionSet::kAvx2) return kAvx2Kernels;
#else
  static_cast<void>(set);
#endif
  return kPortableKernels;
}

Kernel kernel_of(const KernelRow& row, DataType type) {
  switch (type) {
    case DataType::kInt8: return row.int8;
    case DataType::kUint8: return row.uint8;
    case DataType::kInt32: return row.int32;
    case DataType::kUint32: return row.uint32;
    case DataType::kInt64: return row.int64;
    case DataType::kUint64: return row.uint64;
    case DataType::kFloat16: return row.float16;
    case DataType::kFloat32: return row.float32;
    case DataType::kFloat64: return row.float64;
    case DataType::kBfloat16: return row.bfloat16;
  }
  return row.uint8;
}

// How many elements before `out` is at the start of a line; `count` if it never is.
std::size_t before_line(const std::byte* out, std::size_t element, std::size_t count) {
  const std::size_t bytes = (kLine - reinterpret_cast<std::uintptr_t>(out) % kLine) % kLine;
  return bytes % element == 0 ? std::min(bytes / element, count) : count;
}

}  // namespace

std::size_t element_bytes(DataType type) {
  switch (type) {
    case DataType::kInt8:
    case DataType::kUint8: return 1;
    case DataType::kFloat16:
    case DataType::kBfloat16: return 2;
    case DataType::kInt32:
    case DataType::kUint32:
    case DataType::kFloat32: return 4;
    case DataType::kInt64:
    case DataType::kUint64:
    case DataType::kFloat64: return 8;
  }
  return 1;
}

const char* name_of(DataType type) {
  constexpr const char* kNames[kDataTypes] = {"int8",   "uint8",   "int32",   "uint32",  "int64",
                                              "uint64", "float16", "float32", "float64", "bfloat16"};
  return static_cast<std::size_t>(type) < kDataTypes ? kNames[static_cast<std::size_t>(type)] : "?";
}

void reduce_into(void* out, std::span<const void* const> inputs, std::size_t count, DataType type, Reduction op,
                 InstructionSet set) {
  if (inputs.empty() || count == 0) return;
  const bool sum = op == Reduction::kSum;
  const Kernels& kernels = kernels_of(set);
  const Kernel portable = kernel_of(sum ? kPortableKernels.sum : kPortableKernels.max, type);
  const Kernel kernel = kernel_of(sum ? kernels.sum : kernels.max, type);
  auto* const to = static_cast<std::byte*>(out);
  const auto* const from = reinterpret_cast<const std::byte* const*>(inputs.data());
  std::size_t at = 0;
#if defined(__x86_64__)
  const std::size_t element = element_bytes(type), head = before_line(to, element, count);
  if (set != InstructionSet::kPortable && count * element >= kStreamBytes && head < count &&
      std::find(inputs.begin(), inputs.end(), out) == inputs.end()) {
    portable(to, from, inputs.size(), 0, head);
    at = kernel_of(sum ? kernels.streaming_sum : kernels.streaming_max, type)(to, from, inputs.size(), head, count);
    _mm_sfence();
  }
#endif
  at = kernel(to, from, inputs.size(), at, count);
  portable(to, from, inputs.size(), at, count);
}

void reduce_into(void* out, std::span<const void* const> inputs, std::size_t count, DataType type, Reduction op) {
  reduce_into(out, inputs, count, type, op, widest());
}

void sum_into(void* out, std::span<const void* const> inputs, std::size_t count, DataType type) {
  reduce_into(out, inputs, count, type, Reduction::kSum, widest());
}

}  // namespace clustar::paraexpress
