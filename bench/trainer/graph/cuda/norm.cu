// Batch norm by sums of columns, layer norm by a warp for each row.
#include "bench/trainer/graph/cuda/column_sums.h"
#include "bench/trainer/graph/cuda/for_each.h"
#include "bench/trainer/graph/cuda/norm_arguments.h"
#include "bench/trainer/graph/cuda/warps.h"

namespace clustar::bench::trainer::graph::cuda {

__device__ inline void batch_norm_factors(const BatchNormFactorsArguments& of, unsigned c) {
  float mean = of.running_mean[c];
  float variance = of.running_variance[c];
  if (of.mean != nullptr) {
    const float unbiased = of.rows > 1 ? static_cast<float>(of.rows) / static_cast<float>(of.rows - 1) : 1.0f;
    of.running_mean[c] = mean + of.momentum * (of.mean[c] - mean);
    of.running_variance[c] = variance + of.momentum * (of.variance[c] * unbiased - variance);
    mean = of.mean[c];
    variance = of.variance[c];
  }
  const float inverse = 1 / sqrtf(variance + of.epsilon);
  const float factor = of.scale[c] * inverse;
  of.factor[c] = factor;
  of.summand[c] = of.shift[c] - mean * factor;
  if (of.mean != nullptr) of.inverse[c] = inverse;
}

__device__ inline void layer_norm(const LayerNormArguments& of, unsigned long long row, unsigned lane) {
  const float* const x = of.x + row * of.channels;
  float* const y = of.y + row * of.channels;
  const auto channels = static_cast<float>(of.channels);
  float sum = 0;
  for (unsigned c = lane; c < of.channels; c += kWarp) sum += x[c];
  const float mean = sum_of_lanes(sum) / channels;
  float squares = 0;
  for (unsigned c = lane; c < of.channels; c += kWarp) squares += (x[c] - mean) * (x[c] - mean);
  const float inverse = 1 / sqrtf(sum_of_lanes(squares) / channels + of.epsilon);
  for (unsigned c = lane; c < of.channels; c += kWarp) y[c] = (x[c] - mean) * inverse * of.scale[c] + of.shift[c];
  if (of.saved == nullptr || lane != 0) return;
  of.saved[2 * row] = mean;
  of.saved[2 * row + 1] = inverse;
}

__device__ inline void layer_norm_gradient(const LayerNormGradientArguments& of, unsigned long long row,
                                           unsigned lane) {
  const float* const x = of.x + row * of.channels;
  const float* const dy = of.dy + row * of.channels;
  float* const dx = of.dx + row * of.channels;
  const float mean = of.saved[2 * row];
  const float inverse = of.saved[2 * row + 1];
  float sum = 0;
  float along = 0;
  for (unsigned c = lane; c < of.channels; c += kWarp) {
    const float g = dy[c] * of.scale[c];
    sum += g;
    along += g * (x[c] - mean) * inverse;
  }
  const auto channels = static_cast<float>(of.channels);
  const float mean_g = sum_of_lanes(sum) / channels;
  const float mean_along = sum_of_lanes(along) / channels;
  for (unsigned c = lane; c < of.channels; c += kWarp) {
    dx[c] = inverse * (dy[c] * of.scale[c] - mean_g - (x[c] - mean) * inverse * mean_along);
  }
}

}  // namespace clustar::bench::trainer::graph::cuda

extern "C" __global__ void clustar_batch_norm_squares(
    const clustar::bench::trainer::graph::cuda::BatchNormSquaresArguments of) {
  using namespace clustar::bench::trainer::graph::cuda;
  float* const sums[] = {of.squares};
  sum_columns(of.chunks, sums, [&](unsigned long long row, unsigned column, float(&parts)[1]) {
    const float apart = of.x[row * of.chunks.columns + column] - of.mean[column];
    parts[0] += apart * apart;
  });
}

extern "C" __global__ void clustar_batch_norm_factors(
    const clustar::bench::trainer::graph::cuda::BatchNormFactorsArguments of) {
  using namespace clustar::bench::trainer::graph::cuda;
  for_each(of.channels, [&](unsigned long long c) { batch_norm_factors(of, static_cast<unsigned>(c)); });
}

extern "C" __global__ void clustar_scale_columns(const clustar::bench::trainer::graph::cuda::ScaleColumnsArguments of) {
  clustar::bench::trainer::graph::cuda::for_each(of.count, [&](unsigned long long i) {
    const unsigned c = static_cast<unsigned>(i % of.columns);
    of.y[i] = of.x[i] * of.factor[c] + of.summand[c];
  });
}

extern "C" __global__ void clustar_batch_norm_slopes(
    const clustar::bench::trainer::graph::cuda::BatchNormSlopesArguments of) {
  using namespace clustar::bench::trainer::graph::cuda;
  float* const sums[] = {of.scale_sums, of.shift_sums};
  sum_columns(of.chunks, sums, [&](unsigned long long row, unsigned column, float(&parts)[2]) {
    const unsigned long long i = row * of.chunks.columns + column;
    parts[0] += of.dy[i] * (of.x[i] - of.mean[column]);
    parts[1] += of.dy[i];
  });
}

extern "C" __global__ void clustar_batch_norm_totals(
    const clustar::bench::trainer::graph::cuda::BatchNormTotalsArguments of) {
  using namespace clustar::bench::trainer::graph::cuda;
  const auto rows = static_cast<float>(of.rows);
  for_each(of.channels, [&](unsigned long long c) {
    const float along = of.scale_sums[c] * of.inverse[c];
    of.scale_gradient[c] = along;
    of.shift_gradient[c] = of.shift_sums[c];
    of.mean_along[c] = along / rows;
    of.mean_slope[c] = of.shift_sums[c] / rows;
  });
}

extern "C" __global__ void clustar_batch_norm_gradient(
    const clustar::bench::trainer::graph::cuda::BatchNormGradientArguments of) {
  clustar::bench::trainer::graph::cuda::for_each(of.count, [&](unsigned long long i) {
    const unsigned c = static_cast<unsigned>(i % of.channels);
    const float inverse = of.inverse[c];
    const float normalised = (of.x[i] - of.mean[c]) * inverse;
    of.dx[i] = of.scale[c] * inverse * (of.dy[i] - of.mean_slope[c] - normalised * of.mean_along[c]);
  });
}

extern "C" __global__ void clustar_layer_norm(const clustar::bench::trainer::graph::cuda::LayerNormArguments of) {
  using namespace clustar::bench::trainer::graph::cuda;
  for_each_row(of.rows, [&](unsigned long long row, unsigned lane) { layer_norm(of, row, lane); });
}

extern "C" __global__ void clustar_layer_norm_slopes(
    const clustar::bench::trainer::graph::cuda::LayerNormSlopesArguments of) {
  using namespace clustar::bench::trainer::graph::cuda;
  float* const sums[] = {of.scale_sums, of.shift_sums};
  sum_columns(of.chunks, sums, [&](unsigned long long row, unsigned column, float(&parts)[2]) {
    const unsigned long long i = row * of.chunks.columns + column;
    parts[0] += of.dy[i] * (of.x[i] - of.saved[2 * row]) * of.saved[2 * row + 1];
    parts[1] += of.dy[i];
  });
}

extern "C" __global__ void clustar_layer_norm_gradient(
    const clustar::bench::trainer::graph::cuda::LayerNormGradientArguments of) {
  using namespace clustar::bench::trainer::graph::cuda;
  for_each_row(of.rows, [&](unsigned long long row, unsigned lane) { layer_norm_gradient(of, row, lane); });
}
