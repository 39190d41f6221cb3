// The border between the dispatch and the files that are compiled for one instruction set each. Such a file may contain
// nothing that another file could contain, too: the linker would keep either copy, and an old processor could meet the
// new one's instructions. So it includes only this and its compiler's intrinsics, and all it defines is local but one
// table.
#pragma once

#include <cstddef>
#include <cstdint>

namespace clustar::paraexpress {

// out[i] = inputs[0][i] op ... op inputs[n - 1][i] for i in [begin, end), in steps of its own; returns where it
// stopped: less than a step before `end`.
using Kernel = std::size_t (*)(std::byte* out, const std::byte* const* inputs, std::size_t n, std::size_t begin,
                               std::size_t end);

// In the order of DataType.
struct KernelRow {
  Kernel int8, uint8, int32, uint32, int64, uint64, float16, float32, float64, bfloat16;
};
struct Kernels {
  KernelRow sum, max;
  // These write past the caches: `out` + begin is aligned to kLine, and no input.
  KernelRow streaming_sum, streaming_max;
};
inline constexpr std::size_t kLine = 64;

// Takes steps of one element, so it ends at `end`.
extern const Kernels kPortableKernels;
#if defined(__x86_64__)
extern const Kernels kAvx2Kernels;
extern const Kernels kAvx512Kernels;
#endif

// What a NaN becomes.
inline constexpr std::uint16_t kNanFloat16 = 0x7e00, kNanBfloat16 = 0x7fc0;
inline constexpr std::uint32_t kNanFloat32 = 0x7fc00000;
inline constexpr std::uint64_t kNanFloat64 = 0x7ff8000000000000;

}  // namespace clustar::paraexpress
