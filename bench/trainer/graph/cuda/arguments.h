// What the trainer's kernels are launched with: for host and device code alike. Pointers are the device's; floats are
// float32, matrices row-major, images NHWC, as everywhere in bench/trainer/graph.
#pragma once

#include "gdr/kernels/arguments.h"

namespace clustar::bench::trainer::graph::cuda {

using gdr::Kernel;

inline constexpr unsigned kThreads = 256;  // of a block, for all of them

// C[m x n] = op(A)[m x k] op(B)[k x n]; n: as it is, t: stored transposed. A block makes a tile of kTile x kTile; the
// grid is tiles of m by tiles of n. Each element sums in the order of k.
struct GemmArguments {
  const float* a = nullptr;
  const float* b = nullptr;
  float* c = nullptr;
  int m = 0, n = 0, k = 0;
};
inline constexpr int kTile = 64;
inline constexpr Kernel<GemmArguments> kGemmNt{"clustar_gemm_nt"};
inline constexpr Kernel<GemmArguments> kGemmTn{"clustar_gemm_tn"};
inline constexpr Kernel<GemmArguments> kGemmNn{"clustar_gemm_nn"};

// values[r][c] += bias[c].
struct BiasArguments {
  float* values = nullptr;
  const float* bias = nullptr;
  unsigned long long count = 0;  // of values
  unsigned columns = 1;
};
inline constexpr Kernel<BiasArguments> kAddBias{"clustar_add_bias"};

// sums[c] = sum over r of values[r][c]. A block takes kSumColumns columns.
struct ColumnSumsArguments {
  const float* values = nullptr;
  float* sums = nullptr;
  unsigned long long rows = 0;
  unsigned columns = 1;
};
inline constexpr unsigned kSumColumns = 32;
inline constexpr Kernel<ColumnSumsArguments> kColumnSums{"clustar_column_sums"};

// y = x > 0 ? x : 0.
struct ReluArguments {
  const float* x = nullptr;
  float* y = nullptr;
  unsigned long long count = 0;
};
inline constexpr Kernel<ReluArguments> kRelu{"clustar_relu"};
struct ReluGradientArguments {
  const float* y = nullptr;
  const float* dy = nullptr;
  float* dx = nullptr;
  unsigned long long count = 0;
};
inline constexpr Kernel<ReluGradientArguments> kReluGradient{"clustar_relu_gradient"};

// One step of SGD with momentum and weight decay, as bench/trainer/sgd.h has it: v = m v + (g + decay w); w = w - rate
// v.
struct SgdArguments {
  float* parameters = nullptr;
  const float* gradients = nullptr;
  float* velocity = nullptr;
  unsigned long long count = 0;
  float rate = 0, momentum = 0, weight_decay = 0;
};
inline constexpr Kernel<SgdArguments> kSgd{"clustar_sgd"};

// to[i] = from[i], as bf16 or f16 has it; to the nearest, ties to even, beyond f16's range infinity.
struct RoundArguments {
  const float* from = nullptr;
  float* to = nullptr;
  unsigned long long count = 0;
};
inline constexpr Kernel<RoundArguments> kRoundBf16{"clustar_round_bf16"};
inline constexpr Kernel<RoundArguments> kRoundF16{"clustar_round_f16"};

// Windows of `window` x `window` by steps of `stride` over images with `padding` around them.
struct WindowGeometry {
  unsigned rows = 1, columns = 1, channels = 1;
  unsigned out_rows = 1, out_columns = 1;
  unsigned window = 1, stride = 1, padding = 0;
};
// Window p as row p of `windows`, in reading order; zeros where it reaches over the image. And its transpose: an
// element of an image sums what all its windows say about it. From the first image on; `count` elements of the result.
struct GatherArguments {
  const float* images = nullptr;
  float* windows = nullptr;
  unsigned long long count = 0;
  WindowGeometry geometry;
};
inline constexpr Kernel<GatherArguments> kGatherWindows{"clustar_gather_windows"};
struct ScatterArguments {
  const float* windows = nullptr;
  float* images = nullptr;
  unsigned long long count = 0;
  WindowGeometry geometry;
};
inline constexpr Kernel<ScatterArguments> kScatterWindows{"clustar_scatter_windows"};

// The largest of each window, channel by channel, of equal ones the first; `sources`: where in its image it was, or
// null. `count` outputs.
struct MaxPoolArguments {
  const float* x = nullptr;
  float* y = nullptr;
  unsigned* sources = nullptr;
  unsigned long long count = 0;
  WindowGeometry geometry;
};
inline constexpr Kernel<MaxPoolArguments> kMaxPool{"clustar_max_pool"};
// `count` inputs.
struct MaxPoolGradientArguments {
  const unsigned* sources = nullptr;
  const float* dy = nullptr;
  float* dx = nullptr;
  unsigned long long count = 0;
  WindowGeometry geometry;
};
inline constexpr Kernel<MaxPoolGradientArguments> kMaxPoolGradient{"clustar_max_pool_gradient"};

}  // namespace clustar::bench::trainer::graph::cuda
