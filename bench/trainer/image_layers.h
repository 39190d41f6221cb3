// Layers over images: an example is rows x columns x channels, the channels of one pixel adjacent (NHWC), so that
// every row of a convolution's window is one contiguous run.
#pragma once

#include <cstddef>
#include <memory>

#include "bench/trainer/layer.h"

namespace clustar::bench::trainer {

struct ImageShape {
  std::size_t rows = 0;
  std::size_t columns = 0;
  std::size_t channels = 1;

  std::size_t pixels() const { return rows * columns; }
  std::size_t elements() const { return pixels() * channels; }
};

// Cross-correlation with kernel x kernel windows, stride 1, no padding: the output has kernel - 1 rows and columns
// less. Weights are filters x (kernel x kernel x channels); they and the biases start uniform in +-1/sqrt(window
// elements). Throws std::invalid_argument when kernel is 0 or larger than the image.
std::unique_ptr<Layer> make_conv2d(const ImageShape& input, std::size_t filters, std::size_t kernel);
// What the convolution above makes of an image.
ImageShape conv2d_output(const ImageShape& input, std::size_t filters, std::size_t kernel);

// The largest value of each window x window square, channel by channel; rows and columns that fill no square are left
// out. Of equal values the first in reading order gets the gradient. Throws std::invalid_argument when window is 0 or
// larger than the image.
std::unique_ptr<Layer> make_max_pool(const ImageShape& input, std::size_t window);
ImageShape max_pool_output(const ImageShape& input, std::size_t window);

}  // namespace clustar::bench::trainer
