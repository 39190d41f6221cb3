// Of kernels of normalisations. Values are rows x channels; "normalised" is (x - mean) / deviation.
#pragma once

#include "bench/trainer/graph/cuda/arguments.h"

namespace clustar::bench::trainer::graph::cuda {

// squares[chunk][c] = sum over the chunk's rows of (x - mean[c])^2.
struct BatchNormSquaresArguments {
  const float* x = nullptr;
  const float* mean = nullptr;
  float* squares = nullptr;
  Chunks chunks;
};
inline constexpr Kernel<BatchNormSquaresArguments> kBatchNormSquares{"clustar_batch_norm_squares"};

// For each channel what y = factor x + summand takes: in training of the batch's mean and (biased) variance, of which
// the running statistics take their share; otherwise of the running ones.
struct BatchNormFactorsArguments {
  const float* mean = nullptr;  // null: evaluation
  const float* variance = nullptr;
  const float* scale = nullptr;
  const float* shift = nullptr;
  float* running_mean = nullptr;
  float* running_variance = nullptr;
  float* inverse = nullptr;  // 1 / deviation, in training
  float* factor = nullptr;
  float* summand = nullptr;
  unsigned long long rows = 0;
  unsigned channels = 1;
  float epsilon = 0, momentum = 0;
};
inline constexpr Kernel<BatchNormFactorsArguments> kBatchNormFactors{"clustar_batch_norm_factors"};

// y[r][c] = x[r][c] factor[c] + summand[c].
struct ScaleColumnsArguments {
  const float* x = nullptr;
  const float* factor = nullptr;
  const float* summand = nullptr;
  float* y = nullptr;
  unsigned long long count = 0;  // of y
  unsigned columns = 1;
};
inline constexpr Kernel<ScaleColumnsArguments> kScaleColumns{"clustar_scale_columns"};

// scale_sums[chunk][c] = sum over the chunk's rows of dy (x - mean[c]); shift_sums: of dy.
struct BatchNormSlopesArguments {
  const float* x = nullptr;
  const float* dy = nullptr;
  const float* mean = nullptr;
  float* scale_sums = nullptr;
  float* shift_sums = nullptr;
  Chunks chunks;
};
inline constexpr Kernel<BatchNormSlopesArguments> kBatchNormSlopes{"clustar_batch_norm_slopes"};

// Of these sums over all rows: the parameters' gradients, and the means over the rows of dy and of dy times the
// normalised input.
struct BatchNormTotalsArguments {
  const float* scale_sums = nullptr;
  const float* shift_sums = nullptr;
  const float* inverse = nullptr;
  float* scale_gradient = nullptr;
  float* shift_gradient = nullptr;
  float* mean_slope = nullptr;
  float* mean_along = nullptr;
  unsigned long long rows = 0;
  unsigned channels = 1;
};
inline constexpr Kernel<BatchNormTotalsArguments> kBatchNormTotals{"clustar_batch_norm_totals"};

// dx = scale / deviation (dy - mean_slope - normalised x mean_along).
struct BatchNormGradientArguments {
  const float* x = nullptr;
  const float* dy = nullptr;
  const float* scale = nullptr;
  const float* mean = nullptr;
  const float* inverse = nullptr;
  const float* mean_slope = nullptr;
  const float* mean_along = nullptr;
  float* dx = nullptr;
  unsigned long long count = 0;  // of dx
  unsigned channels = 1;
};
inline constexpr Kernel<BatchNormGradientArguments> kBatchNormGradient{"clustar_batch_norm_gradient"};

// A warp takes a row. `saved`, unless it is null: of each row its mean and 1 / deviation.
struct LayerNormArguments {
  const float* x = nullptr;
  const float* scale = nullptr;
  const float* shift = nullptr;
  float* y = nullptr;
  float* saved = nullptr;
  unsigned long long rows = 0;
  unsigned channels = 1;
  float epsilon = 0;
};
inline constexpr Kernel<LayerNormArguments> kLayerNorm{"clustar_layer_norm"};

// scale_sums[chunk][c] = sum over the chunk's rows of dy times the normalised input; shift_sums: of dy.
struct LayerNormSlopesArguments {
  const float* x = nullptr;
  const float* dy = nullptr;
  const float* saved = nullptr;
  float* scale_sums = nullptr;
  float* shift_sums = nullptr;
  Chunks chunks;
};
inline constexpr Kernel<LayerNormSlopesArguments> kLayerNormSlopes{"clustar_layer_norm_slopes"};

// With g = dy scale: dx = (g - mean of g - normalised x mean of g normalised x) / deviation, means over the row.
struct LayerNormGradientArguments {
  const float* x = nullptr;
  const float* dy = nullptr;
  const float* scale = nullptr;
  const float* saved = nullptr;
  float* dx = nullptr;
  unsigned long long rows = 0;
  unsigned channels = 1;
};
inline constexpr Kernel<LayerNormGradientArguments> kLayerNormGradient{"clustar_layer_norm_gradient"};

}  // namespace clustar::bench::trainer::graph::cuda
