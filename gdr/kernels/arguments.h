// What the kernels here are launched with: for host and device code alike. Pointers are the device's; 16-byte alignment
// is not needed, that of the elements is.
#pragma once

namespace clustar::gdr {

// A kernel by name, with the type of its one argument.
template <class Argument>
struct Kernel {
  const char* name;
};

// sums[i] = sum of |values[j]| over block i: `per_block` values from i * per_block on, the last one cut at `count`. A
// warp takes a block. In float32, whatever the values are.
struct ImportanceArguments {
  const void* values = nullptr;
  unsigned long long count = 0;
  unsigned long long per_block = 0;  // at least 1
  float* sums = nullptr;             // ceil(count / per_block)
};
inline constexpr Kernel<ImportanceArguments> kImportanceF32{"clustar_importance_f32"};
inline constexpr Kernel<ImportanceArguments> kImportanceF16{"clustar_importance_f16"};
inline constexpr Kernel<ImportanceArguments> kImportanceBf16{"clustar_importance_bf16"};

// Zeroes `count` ranges of bytes: ranges[2 i] is the offset from `base` of range i, ranges[2 i + 1] its length. They do
// not overlap. A thread block takes a range.
struct ZeroArguments {
  unsigned char* base = nullptr;
  const unsigned long long* ranges = nullptr;
  unsigned long long count = 0;
};
inline constexpr Kernel<ZeroArguments> kZeroRanges{"clustar_zero_ranges"};

// Sums of which contributions are missing, as if all had come: values[j] * ranks / contributions, in float64 and
// rounded once. segments[3 i] is the first element of segment i, segments[3 i + 1] how many there are, segments[3 i +
// 2] how many ranks contributed to each, at least 1. They do not overlap. A thread block takes a segment.
struct RescaleArguments {
  float* values = nullptr;
  const unsigned long long* segments = nullptr;
  unsigned long long count = 0;  // of segments
  unsigned ranks = 1;
};
inline constexpr Kernel<RescaleArguments> kRescaleF32{"clustar_rescale_f32"};

// sum[i] += more[i], i below `count`. f16 and bf16 are added in float32 and rounded to the nearest, ties to even;
// integers wrap. Signed and unsigned integers of one size are one kernel. `sum` and `more` do not overlap.
struct SumArguments {
  void* sum = nullptr;
  const void* more = nullptr;
  unsigned long long count = 0;
};
inline constexpr Kernel<SumArguments> kSumF32{"clustar_sum_f32"};
inline constexpr Kernel<SumArguments> kSumF64{"clustar_sum_f64"};
inline constexpr Kernel<SumArguments> kSumF16{"clustar_sum_f16"};
inline constexpr Kernel<SumArguments> kSumBf16{"clustar_sum_bf16"};
inline constexpr Kernel<SumArguments> kSumI8{"clustar_sum_i8"};
inline constexpr Kernel<SumArguments> kSumI32{"clustar_sum_i32"};
inline constexpr Kernel<SumArguments> kSumI64{"clustar_sum_i64"};

}  // namespace clustar::gdr
