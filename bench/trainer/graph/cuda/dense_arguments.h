// Of kernels on matrices, and on each element alone.
#pragma once

#include "bench/trainer/graph/cuda/arguments.h"

namespace clustar::bench::trainer::graph::cuda {

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

// sums[chunk][c] = sum over the chunk's r of values[r][c].
struct ColumnSumsArguments {
  const float* values = nullptr;
  float* sums = nullptr;
  Chunks chunks;
};
inline constexpr Kernel<ColumnSumsArguments> kColumnSums{"clustar_column_sums"};

// y = f(x): x > 0 ? x : 0; Op's Gelu; x itself.
struct MapArguments {
  const float* x = nullptr;
  float* y = nullptr;
  unsigned long long count = 0;
};
inline constexpr Kernel<MapArguments> kRelu{"clustar_relu"};
inline constexpr Kernel<MapArguments> kGelu{"clustar_gelu"};
inline constexpr Kernel<MapArguments> kCopy{"clustar_copy"};

// result = f(a, b): b where a is positive, otherwise 0 (the gradient of ReLU by its output and dy); the gradient of
// GELU by its input and dy; a + b; a b.
struct PairArguments {
  const float* a = nullptr;
  const float* b = nullptr;
  float* result = nullptr;
  unsigned long long count = 0;
};
inline constexpr Kernel<PairArguments> kReluGradient{"clustar_relu_gradient"};
inline constexpr Kernel<PairArguments> kGeluGradient{"clustar_gelu_gradient"};
inline constexpr Kernel<PairArguments> kAdd{"clustar_add"};
inline constexpr Kernel<PairArguments> kMultiply{"clustar_multiply"};

// y = x factor: factor[i] is 0 where 16 bits drawn for element i are below `dropped_below`, otherwise `scale`. The bits
// are those of the plain kernel: element i has the (i mod 4)-th 16 of mix64(draw + (i - i mod 4) golden gamma).
struct DropoutArguments {
  const float* x = nullptr;
  float* y = nullptr;
  float* factors = nullptr;
  unsigned long long count = 0;
  unsigned long long draw = 0;
  unsigned dropped_below = 0;
  float scale = 1;
};
inline constexpr Kernel<DropoutArguments> kDropout{"clustar_dropout"};

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

}  // namespace clustar::bench::trainer::graph::cuda
