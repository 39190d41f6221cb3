#include "bench/trainer/image_layers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "bench/trainer/gemm.h"

namespace clustar::bench::trainer {
namespace {

// Windows of as many images as fit this many floats are multiplied at a time: they stay in the second-level cache.
constexpr std::size_t kWindowFloats = 64 * 1024;

void require_fit(const char* what, const ImageShape& image, std::size_t side) {
  if (side >= 1 && side <= image.rows && side <= image.columns) return;
  throw std::invalid_argument(fmt::format("a {} of {} x {} does not fit an image of {} x {}; allowed: 1 to {}", what,
                                          side, side, image.rows, image.columns, std::min(image.rows, image.columns)));
}

// A convolution is a matrix product once the windows lie as rows (im2col: Chellapilla et al., IWFHR 2006): the same
// code, whichever GEMM the build has.
class Conv2d final : public Layer {
 public:
  Conv2d(const ImageShape& input, std::size_t filters, std::size_t kernel)
      : input_(input),
        output_(conv2d_output(input, filters, kernel)),
        kernel_(kernel),
        window_(kernel * kernel * input.channels),
        group_(std::max<std::size_t>(1, kWindowFloats / (output_.pixels() * window_))) {}

  std::string name() const override {
    return fmt::format("conv2d {}x{}x{}, {} of {}x{}", input_.rows, input_.columns, input_.channels, output_.channels,
                       kernel_, kernel_);
  }
  std::size_t inputs() const override { return input_.elements(); }
  std::size_t outputs() const override { return output_.elements(); }
  std::vector<TensorSpec> tensors() const override {
    return {{"weight", output_.channels * window_, window_}, {"bias", output_.channels, 1}};
  }
  // The windows of one group of images, and one group's part of the weights' gradient.
  std::size_t scratch() const override { return group_ * output_.pixels() * window_ + output_.channels * window_; }

  void initialise(std::span<float* const> parameters, Rng& rng) const override {
    const double bound = 1 / std::sqrt(static_cast<double>(window_));
    const auto fill = [&](float* values, std::size_t count) {
      for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(rng.uniform(-bound, bound));
    };
    fill(parameters[0], output_.channels * window_);
    fill(parameters[1], output_.channels);
  }

  void forward(const LayerCall& call) const override {
    const float* bias = call.parameters[1];
    for_groups(call.batch, [&](std::size_t first, std::size_t images) {
      gather_windows(call.x + first * inputs(), images, call.scratch);
      float* y = call.y + first * outputs();
      const std::size_t pixels = images * output_.pixels();
      gemm({.a = Trans::kNo, .b = Trans::kYes, .m = pixels, .n = output_.channels, .k = window_}, call.scratch,
           call.parameters[0], y);
      for (std::size_t p = 0; p < pixels; ++p) {
        for (std::size_t f = 0; f < output_.channels; ++f) y[p * output_.channels + f] += bias[f];
      }
    });
  }

  void backward_parameters(const LayerCall& call) const override {
    float* weights = call.gradients[0];
    float* bias = call.gradients[1];
    const std::size_t count = output_.channels * window_;
    float* part = call.scratch + group_ * output_.pixels() * window_;
    std::fill(weights, weights + count, 0.0f);
    std::fill(bias, bias + output_.channels, 0.0f);
    for_groups(call.batch, [&](std::size_t first, std::size_t images) {
      gather_windows(call.x + first * inputs(), images, call.scratch);
      const float* dy = call.dy + first * outputs();
      const std::size_t pixels = images * output_.pixels();
      gemm({.a = Trans::kYes, .b = Trans::kNo, .m = output_.channels, .n = window_, .k = pixels}, dy, call.scratch,
           part);
      for (std::size_t i = 0; i < count; ++i) weights[i] += part[i];
      for (std::size_t p = 0; p < pixels; ++p) {
        for (std::size_t f = 0; f < output_.channels; ++f) bias[f] += dy[p * output_.channels + f];
      }
    });
  }

  void backward_input(const LayerCall& call) const override {
    for_groups(call.batch, [&](std::size_t first, std::size_t images) {
      const std::size_t pixels = images * output_.pixels();
      gemm({.a = Trans::kNo, .b = Trans::kNo, .m = pixels, .n = window_, .k = output_.channels},
           call.dy + first * outputs(), call.parameters[0], call.scratch);
      scatter_windows(call.scratch, images, call.dx + first * inputs());
    });
  }

 private:
  template <class Do>
  void for_groups(std::size_t batch, const Do& act) const {
    for (std::size_t first = 0; first < batch; first += group_) act(first, std::min(group_, batch - first));
  }

  // Calls run(offset in the image, offset in its windows) for every row of every window.
  template <class Run>
  void for_window_rows(const Run& run) const {
    const std::size_t run_length = kernel_ * input_.channels;
    std::size_t at = 0;
    for (std::size_t r = 0; r < output_.rows; ++r) {
      for (std::size_t c = 0; c < output_.columns; ++c) {
        for (std::size_t k = 0; k < kernel_; ++k, at += run_length) {
          run(((r + k) * input_.columns + c) * input_.channels, at);
        }
      }
    }
  }

  void gather_windows(const float* x, std::size_t images, float* windows) const {
    const std::size_t run_length = kernel_ * input_.channels;
    for (std::size_t i = 0; i < images; ++i, x += inputs(), windows += output_.pixels() * window_) {
      for_window_rows([&](std::size_t in, std::size_t at) { std::copy_n(x + in, run_length, windows + at); });
    }
  }

  // The transpose of gather_windows: a pixel sums what all its windows say about it.
  void scatter_windows(const float* windows, std::size_t images, float* dx) const {
    const std::size_t run_length = kernel_ * input_.channels;
    std::fill(dx, dx + images * inputs(), 0.0f);
    for (std::size_t i = 0; i < images; ++i, dx += inputs(), windows += output_.pixels() * window_) {
      for_window_rows([&](std::size_t in, std::size_t at) {
        for (std::size_t j = 0; j < run_length; ++j) dx[in + j] += windows[at + j];
      });
    }
  }

  ImageShape input_;
  ImageShape output_;
  std::size_t kernel_;
  std::size_t window_;  // elements
  std::size_t group_;   // images whose windows are in scratch at a time
};

class MaxPool final : public Layer {
 public:
  MaxPool(const ImageShape& input, std::size_t window)
      : input_(input), output_(max_pool_output(input, window)), window_(window) {}

  std::string name() const override {
    return fmt::format("max pool {}x{}x{} by {}", input_.rows, input_.columns, input_.channels, window_);
  }
  std::size_t inputs() const override { return input_.elements(); }
  std::size_t outputs() const override { return output_.elements(); }

  void forward(const LayerCall& call) const override {
    for_outputs(call, [&](const float* x, std::size_t largest, std::size_t out) { call.y[out] = x[largest]; });
  }

  // The place of the largest value is sought again: a layer keeps nothing between calls.
  void backward_input(const LayerCall& call) const override {
    std::fill(call.dx, call.dx + call.batch * inputs(), 0.0f);
    for_outputs(call, [&](const float* x, std::size_t largest, std::size_t out) {
      call.dx[static_cast<std::size_t>(x - call.x) + largest] = call.dy[out];
    });
  }

 private:
  // Calls act(the image, offset of a window's largest value in it, index of that window's output in the batch).
  template <class Act>
  void for_outputs(const LayerCall& call, const Act& act) const {
    std::size_t out = 0;
    for (std::size_t i = 0; i < call.batch; ++i) {
      const float* x = call.x + i * inputs();
      for (std::size_t r = 0; r < output_.rows; ++r) {
        for (std::size_t c = 0; c < output_.columns; ++c) {
          const std::size_t corner = (r * window_ * input_.columns + c * window_) * input_.channels;
          for (std::size_t ch = 0; ch < input_.channels; ++ch, ++out) act(x, largest_in_window(x, corner + ch), out);
        }
      }
    }
  }

  std::size_t largest_in_window(const float* x, std::size_t corner) const {
    std::size_t largest = corner;
    for (std::size_t r = 0; r < window_; ++r) {
      for (std::size_t c = 0; c < window_; ++c) {
        const std::size_t at = corner + (r * input_.columns + c) * input_.channels;
        if (x[at] > x[largest]) largest = at;
      }
    }
    return largest;
  }

  ImageShape input_;
  ImageShape output_;
  std::size_t window_;
};

}  // namespace

ImageShape conv2d_output(const ImageShape& input, std::size_t filters, std::size_t kernel) {
  require_fit("convolution kernel", input, kernel);
  return {input.rows - kernel + 1, input.columns - kernel + 1, filters};
}

std::unique_ptr<Layer> make_conv2d(const ImageShape& input, std::size_t filters, std::size_t kernel) {
  return std::make_unique<Conv2d>(input, filters, kernel);
}

ImageShape max_pool_output(const ImageShape& input, std::size_t window) {
  require_fit("pooling window", input, window);
  return {input.rows / window, input.columns / window, input.channels};
}

std::unique_ptr<Layer> make_max_pool(const ImageShape& input, std::size_t window) {
  return std::make_unique<MaxPool>(input, window);
}

}  // namespace clustar::bench::trainer
