// Windows of images: what makes a convolution a product of matrices, and pooling.
#include "bench/trainer/graph/cuda/for_each.h"
#include "bench/trainer/graph/cuda/image_arguments.h"

namespace clustar::bench::trainer::graph::cuda {

// Windows along one side that contain place `at` of the padded image: from `first` to `last`, none where first > last.
struct Windows {
  unsigned first;
  unsigned last;
};
__device__ inline Windows containing(unsigned at, unsigned window, unsigned stride, unsigned count) {
  const unsigned first = at < window ? 0 : (at - window) / stride + 1;
  const unsigned last = at / stride;
  return {first, last < count ? last : count - 1};
}

// An element of an image, by its number in a batch.
struct Element {
  unsigned channel, column, row;
  unsigned long long image;
};
__device__ inline Element element_of(unsigned long long i, unsigned rows, unsigned columns, unsigned channels) {
  const unsigned long long position = i / channels;
  const unsigned long long line = position / columns;
  return {static_cast<unsigned>(i % channels), static_cast<unsigned>(position % columns),
          static_cast<unsigned>(line % rows), line / rows};
}

__device__ inline void gather(const GatherArguments& of, unsigned long long i) {
  const WindowGeometry& g = of.geometry;
  const unsigned run = g.window * g.channels;
  const unsigned long long window = i / (g.window * run);
  const auto place = static_cast<unsigned>(i % (g.window * run));
  const Element out = element_of(window, g.out_rows, g.out_columns, 1);
  // In the padded image.
  const unsigned row = out.row * g.stride + place / run;
  const unsigned column = out.column * g.stride + place % run / g.channels;
  const bool inside =
      row >= g.padding && row < g.rows + g.padding && column >= g.padding && column < g.columns + g.padding;
  const unsigned long long line = out.image * g.rows + (row - g.padding);
  of.windows[i] =
      inside ? of.images[(line * g.columns + (column - g.padding)) * g.channels + place % g.channels] : 0.0f;
}

__device__ inline void scatter(const ScatterArguments& of, unsigned long long i) {
  const WindowGeometry& g = of.geometry;
  const Element in = element_of(i, g.rows, g.columns, g.channels);
  const unsigned row = in.row + g.padding;
  const unsigned column = in.column + g.padding;
  const Windows down = containing(row, g.window, g.stride, g.out_rows);
  const Windows across = containing(column, g.window, g.stride, g.out_columns);
  float sum = 0;
  for (unsigned r = down.first; r <= down.last; ++r) {
    for (unsigned c = across.first; c <= across.last; ++c) {
      const unsigned long long window = (in.image * g.out_rows + r) * g.out_columns + c;
      const unsigned place = (row - r * g.stride) * g.window + (column - c * g.stride);
      sum += of.windows[(window * g.window * g.window + place) * g.channels + in.channel];
    }
  }
  of.images[i] = sum;
}

__device__ inline void max_pool(const MaxPoolArguments& of, unsigned long long i) {
  const WindowGeometry& g = of.geometry;
  const Element out = element_of(i, g.out_rows, g.out_columns, g.channels);
  const float* const image = of.x + out.image * g.rows * g.columns * g.channels;
  float largest = 0;
  unsigned source = 0;
  bool first = true;
  for (unsigned r = out.row * g.stride; r < out.row * g.stride + g.window; ++r) {
    if (r < g.padding || r >= g.rows + g.padding) continue;
    for (unsigned c = out.column * g.stride; c < out.column * g.stride + g.window; ++c) {
      if (c < g.padding || c >= g.columns + g.padding) continue;
      const unsigned at = ((r - g.padding) * g.columns + (c - g.padding)) * g.channels + out.channel;
      if (first || image[at] > largest) {
        largest = image[at];
        source = at;
      }
      first = false;
    }
  }
  of.y[i] = largest;
  if (of.sources != nullptr) of.sources[i] = source;
}

__device__ inline void max_pool_gradient(const MaxPoolGradientArguments& of, unsigned long long i) {
  const WindowGeometry& g = of.geometry;
  const Element in = element_of(i, g.rows, g.columns, g.channels);
  const unsigned own = (in.row * g.columns + in.column) * g.channels + in.channel;
  const Windows down = containing(in.row + g.padding, g.window, g.stride, g.out_rows);
  const Windows across = containing(in.column + g.padding, g.window, g.stride, g.out_columns);
  float sum = 0;
  for (unsigned r = down.first; r <= down.last; ++r) {
    for (unsigned c = across.first; c <= across.last; ++c) {
      const unsigned long long output = ((in.image * g.out_rows + r) * g.out_columns + c) * g.channels + in.channel;
      if (of.sources[output] == own) sum += of.dy[output];
    }
  }
  of.dx[i] = sum;
}

// Of `ins` places along one side, those of which place `at` of `outs` is the mean. With the two exchanged: those whose
// means have place `at`.
struct Range {
  unsigned from;
  unsigned to;
};
__device__ inline Range covered(unsigned at, unsigned ins, unsigned outs) {
  const unsigned long long wide = at;
  return {static_cast<unsigned>(wide * ins / outs), static_cast<unsigned>(((wide + 1) * ins + outs - 1) / outs)};
}

__device__ inline float mean_weight(const Range& rows, const Range& columns) {
  return 1.0f / static_cast<float>((rows.to - rows.from) * (columns.to - columns.from));
}

__device__ inline void average_pool(const AveragePoolArguments& of, unsigned long long i) {
  const PoolGeometry& g = of.geometry;
  const Element out = element_of(i, g.out_rows, g.out_columns, g.channels);
  const Range rows = covered(out.row, g.rows, g.out_rows);
  const Range columns = covered(out.column, g.columns, g.out_columns);
  const float weight = mean_weight(rows, columns);
  float sum = 0;
  for (unsigned r = rows.from; r < rows.to; ++r) {
    for (unsigned c = columns.from; c < columns.to; ++c) {
      sum += weight * of.x[((out.image * g.rows + r) * g.columns + c) * g.channels + out.channel];
    }
  }
  of.y[i] = sum;
}

__device__ inline void average_pool_gradient(const AveragePoolGradientArguments& of, unsigned long long i) {
  const PoolGeometry& g = of.geometry;
  const Element in = element_of(i, g.rows, g.columns, g.channels);
  const Range down = covered(in.row, g.out_rows, g.rows);
  const Range across = covered(in.column, g.out_columns, g.columns);
  float sum = 0;
  for (unsigned r = down.from; r < down.to; ++r) {
    const Range rows = covered(r, g.rows, g.out_rows);
    for (unsigned c = across.from; c < across.to; ++c) {
      const float weight = mean_weight(rows, covered(c, g.columns, g.out_columns));
      sum += weight * of.dy[((in.image * g.out_rows + r) * g.out_columns + c) * g.channels + in.channel];
    }
  }
  of.dx[i] = sum;
}

}  // namespace clustar::bench::trainer::graph::cuda

extern "C" __global__ void clustar_gather_windows(const clustar::bench::trainer::graph::cuda::GatherArguments of) {
  using namespace clustar::bench::trainer::graph::cuda;
  for_each(of.count, [&](unsigned long long i) { gather(of, i); });
}
extern "C" __global__ void clustar_scatter_windows(const clustar::bench::trainer::graph::cuda::ScatterArguments of) {
  using namespace clustar::bench::trainer::graph::cuda;
  for_each(of.count, [&](unsigned long long i) { scatter(of, i); });
}
extern "C" __global__ void clustar_max_pool(const clustar::bench::trainer::graph::cuda::MaxPoolArguments of) {
  using namespace clustar::bench::trainer::graph::cuda;
  for_each(of.count, [&](unsigned long long i) { max_pool(of, i); });
}
extern "C" __global__ void clustar_max_pool_gradient(
    const clustar::bench::trainer::graph::cuda::MaxPoolGradientArguments of) {
  using namespace clustar::bench::trainer::graph::cuda;
  for_each(of.count, [&](unsigned long long i) { max_pool_gradient(of, i); });
}
extern "C" __global__ void clustar_average_pool(const clustar::bench::trainer::graph::cuda::AveragePoolArguments of) {
  using namespace clustar::bench::trainer::graph::cuda;
  for_each(of.count, [&](unsigned long long i) { average_pool(of, i); });
}
extern "C" __global__ void clustar_average_pool_gradient(
    const clustar::bench::trainer::graph::cuda::AveragePoolGradientArguments of) {
  using namespace clustar::bench::trainer::graph::cuda;
  for_each(of.count, [&](unsigned long long i) { average_pool_gradient(of, i); });
}
