// Element by element, and sums of columns.
#include "bench/trainer/graph/cuda/arguments.h"
#include "bench/trainer/graph/cuda/for_each.h"
#include "gdr/kernels/vectors.h"

namespace clustar::bench::trainer::graph::cuda {

template <class SixteenBits>
__device__ inline void round_all(const RoundArguments& of) {
  for_each(of.count, [&](unsigned long long i) {
    SixteenBits rounded;
    gdr::store(rounded, of.from[i]);
    of.to[i] = gdr::as_float(rounded);
  });
}

}  // namespace clustar::bench::trainer::graph::cuda

extern "C" __global__ void clustar_round_bf16(const clustar::bench::trainer::graph::cuda::RoundArguments of) {
  clustar::bench::trainer::graph::cuda::round_all<clustar::gdr::Bfloat>(of);
}

extern "C" __global__ void clustar_round_f16(const clustar::bench::trainer::graph::cuda::RoundArguments of) {
  clustar::bench::trainer::graph::cuda::round_all<clustar::gdr::Half>(of);
}

extern "C" __global__ void clustar_add_bias(const clustar::bench::trainer::graph::cuda::BiasArguments of) {
  clustar::bench::trainer::graph::cuda::for_each(
      of.count, [&](unsigned long long i) { of.values[i] += of.bias[i % of.columns]; });
}

extern "C" __global__ void clustar_sgd(const clustar::bench::trainer::graph::cuda::SgdArguments of) {
  clustar::bench::trainer::graph::cuda::for_each(of.count, [&](unsigned long long i) {
    // Not even a product with zero: an infinite parameter would make it NaN.
    const float decayed = of.weight_decay == 0 ? of.gradients[i] : of.gradients[i] + of.weight_decay * of.parameters[i];
    const float velocity = of.momentum * of.velocity[i] + decayed;
    of.velocity[i] = velocity;
    of.parameters[i] -= of.rate * velocity;
  });
}

extern "C" __global__ void clustar_relu(const clustar::bench::trainer::graph::cuda::ReluArguments of) {
  clustar::bench::trainer::graph::cuda::for_each(of.count,
                                                 [&](unsigned long long i) { of.y[i] = of.x[i] > 0 ? of.x[i] : 0.0f; });
}

extern "C" __global__ void clustar_relu_gradient(const clustar::bench::trainer::graph::cuda::ReluGradientArguments of) {
  clustar::bench::trainer::graph::cuda::for_each(
      of.count, [&](unsigned long long i) { of.dx[i] = of.y[i] > 0 ? of.dy[i] : 0.0f; });
}

// A thread sums every kRows-th row of its column, then the block's kRows sums of a column are added in order.
extern "C" __global__ void clustar_column_sums(const clustar::bench::trainer::graph::cuda::ColumnSumsArguments of) {
  constexpr unsigned kColumns = clustar::bench::trainer::graph::cuda::kSumColumns;
  constexpr unsigned kRows = clustar::bench::trainer::graph::cuda::kThreads / kColumns;
  __shared__ float parts[kRows][kColumns];
  const unsigned row = threadIdx.x / kColumns;
  const unsigned across = threadIdx.x % kColumns;
  const unsigned column = blockIdx.x * kColumns + across;
  float sum = 0;
  if (column < of.columns) {
    for (unsigned long long r = row; r < of.rows; r += kRows) sum += of.values[r * of.columns + column];
  }
  parts[row][across] = sum;
  __syncthreads();
  if (row != 0 || column >= of.columns) return;
  for (unsigned r = 1; r < kRows; ++r) sum += parts[r][across];
  of.sums[column] = sum;
}
