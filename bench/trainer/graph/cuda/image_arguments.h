// Of kernels on images.
#pragma once

#include "bench/trainer/graph/cuda/arguments.h"

namespace clustar::bench::trainer::graph::cuda {

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

// Op's AdaptiveAveragePool: output (i, j) is the mean of rows floor(i R/rows) to ceil((i + 1) R/rows), columns alike.
// `count` outputs; of the gradient `count` inputs.
struct PoolGeometry {
  unsigned rows = 1, columns = 1, channels = 1;
  unsigned out_rows = 1, out_columns = 1;
};
struct AveragePoolArguments {
  const float* x = nullptr;
  float* y = nullptr;
  unsigned long long count = 0;
  PoolGeometry geometry;
};
inline constexpr Kernel<AveragePoolArguments> kAveragePool{"clustar_average_pool"};
struct AveragePoolGradientArguments {
  const float* dy = nullptr;
  float* dx = nullptr;
  unsigned long long count = 0;
  PoolGeometry geometry;
};
inline constexpr Kernel<AveragePoolGradientArguments> kAveragePoolGradient{"clustar_average_pool_gradient"};

}  // namespace clustar::bench::trainer::graph::cuda
