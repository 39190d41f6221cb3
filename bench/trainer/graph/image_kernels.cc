#include "bench/trainer/graph/image_kernels.h"

#include <algorithm>
#include <cstdint>

namespace clustar::bench::trainer::graph {
namespace {

// Windows of as many positions as fit this many floats are multiplied at a time: they stay in the second-level cache.
constexpr std::size_t kWindowFloats = 64 * 1024;

// A convolution is a matrix product once the windows lie as rows (im2col: Chellapilla et al., IWFHR 2006).
class ConvolutionKernel final : public Kernel {
 public:
  ConvolutionKernel(const Convolution& op, const Shape& in, const Shape& out, Gemm gemm)
      : op_(op),
        in_(in),
        out_(out),
        run_(op.kernel * in.channels),
        window_(op.kernel * run_),
        group_(std::max<std::size_t>(1, kWindowFloats / window_)),
        gemm_(gemm) {}

  // The windows of one group of positions, and one group's part of the weights' gradient.
  std::size_t scratch(std::size_t) const override { return (group_ + op_.filters) * window_; }

  void forward(const ForwardCall& call) override {
    for_groups(call.batch, [&](std::size_t first, std::size_t count) {
      gather(call.inputs[0], first, count, call.scratch);
      float* y = call.output + first * op_.filters;
      gemm_({.a = Trans::kNo, .b = Trans::kYes, .m = count, .n = op_.filters, .k = window_}, call.scratch,
            call.parameters[0], y);
      if (!op_.bias) return;
      const float* bias = call.parameters[1];
      for (std::size_t p = 0; p < count; ++p, y += op_.filters) {
        for (std::size_t f = 0; f < op_.filters; ++f) y[f] += bias[f];
      }
    });
  }

  void backward_parameters(const BackwardCall& call) override {
    float* weights = call.gradients[0];
    const std::size_t size = op_.filters * window_;
    float* part = call.scratch + group_ * window_;
    std::fill_n(weights, size, 0.0f);
    for_groups(call.batch, [&](std::size_t first, std::size_t count) {
      gather(call.inputs[0], first, count, call.scratch);
      gemm_({.a = Trans::kYes, .b = Trans::kNo, .m = op_.filters, .n = window_, .k = count},
            call.output_gradient + first * op_.filters, call.scratch, part);
      for (std::size_t i = 0; i < size; ++i) weights[i] += part[i];
    });
    if (!op_.bias) return;
    float* bias = call.gradients[1];
    std::fill_n(bias, op_.filters, 0.0f);
    const float* dy = call.output_gradient;
    for (std::size_t p = 0; p < call.batch * out_.positions(); ++p, dy += op_.filters) {
      for (std::size_t f = 0; f < op_.filters; ++f) bias[f] += dy[f];
    }
  }

  void backward_inputs(const BackwardCall& call) override {
    float* dx = call.input_gradients[0];
    if (dx == nullptr) return;
    std::fill_n(dx, call.batch * in_.elements(), 0.0f);
    for_groups(call.batch, [&](std::size_t first, std::size_t count) {
      gemm_({.a = Trans::kNo, .b = Trans::kNo, .m = count, .n = window_, .k = op_.filters},
            call.output_gradient + first * op_.filters, call.parameters[0], call.scratch);
      scatter(call.scratch, first, count, dx);
    });
  }

 private:
  template <class Do>
  void for_groups(std::size_t batch, const Do& act) const {
    const std::size_t positions = batch * out_.positions();
    for (std::size_t first = 0; first < positions; first += group_) act(first, std::min(group_, positions - first));
  }

  // Calls run(offset in the batch of images, offset in the windows, floats) for each row of each window as far as it
  // lies in the image.
  template <class Run>
  void for_window_rows(std::size_t first, std::size_t count, const Run& run) const {
    for (std::size_t p = first; p < first + count; ++p) {
      const std::size_t image = p / out_.positions();
      const std::size_t row = p % out_.positions() / out_.columns * op_.stride;  // in the padded image
      const std::size_t column = p % out_.columns * op_.stride;
      const std::size_t from = std::max(column, op_.padding);
      const std::size_t to = std::min(column + op_.kernel, in_.columns + op_.padding);
      if (from >= to) continue;
      for (std::size_t k = 0; k < op_.kernel; ++k) {
        const std::size_t r = row + k;
        if (r < op_.padding || r >= in_.rows + op_.padding) continue;
        const std::size_t at = ((image * in_.rows + r - op_.padding) * in_.columns + from - op_.padding) * in_.channels;
        run(at, (p - first) * window_ + k * run_ + (from - column) * in_.channels, (to - from) * in_.channels);
      }
    }
  }

  void gather(const float* x, std::size_t first, std::size_t count, float* windows) const {
    if (op_.padding > 0) std::fill_n(windows, count * window_, 0.0f);
    for_window_rows(first, count, [&](std::size_t in, std::size_t at, std::size_t floats) {
      std::copy_n(x + in, floats, windows + at);
    });
  }

  // The transpose of gather: an element sums what all its windows say about it.
  void scatter(const float* windows, std::size_t first, std::size_t count, float* dx) const {
    for_window_rows(first, count, [&](std::size_t in, std::size_t at, std::size_t floats) {
      for (std::size_t j = 0; j < floats; ++j) dx[in + j] += windows[at + j];
    });
  }

  Convolution op_;
  Shape in_;
  Shape out_;
  std::size_t run_;     // floats of a window's row
  std::size_t window_;  // floats
  std::size_t group_;   // positions whose windows are in scratch at a time
  Gemm gemm_;
};

class MaxPoolKernel final : public Kernel {
 public:
  MaxPoolKernel(const MaxPool& op, const Shape& in, const Shape& out) : op_(op), in_(in), out_(out) {}

  // Where in its image each output's value came from: 32-bit integers.
  std::size_t saved(std::size_t batch) const override { return batch * out_.elements(); }
  std::size_t scratch(std::size_t) const override { return out_.channels; }

  void forward(const ForwardCall& call) override {
    auto* sources = reinterpret_cast<std::uint32_t*>(call.saved);
    auto* unused = reinterpret_cast<std::uint32_t*>(call.scratch);
    for (std::size_t p = 0; p < call.batch * out_.positions(); ++p) {
      const std::size_t at = p * out_.channels;
      pool(call.inputs[0] + p / out_.positions() * in_.elements(), p % out_.positions(), call.output + at,
           sources != nullptr ? sources + at : unused);
    }
  }

  void backward_inputs(const BackwardCall& call) override {
    float* dx = call.input_gradients[0];
    if (dx == nullptr) return;
    std::fill_n(dx, call.batch * in_.elements(), 0.0f);
    const auto* sources = reinterpret_cast<const std::uint32_t*>(call.saved);
    for (std::size_t i = 0; i < call.batch; ++i, dx += in_.elements()) {
      for (std::size_t o = i * out_.elements(); o < (i + 1) * out_.elements(); ++o) {
        dx[sources[o]] += call.output_gradient[o];
      }
    }
  }

 private:
  void pool(const float* image, std::size_t position, float* __restrict y, std::uint32_t* __restrict source) const {
    const std::size_t row = position / out_.columns * op_.stride;
    const std::size_t column = position % out_.columns * op_.stride;
    bool first = true;
    for (std::size_t r = std::max(row, op_.padding); r < std::min(row + op_.window, in_.rows + op_.padding); ++r) {
      for (std::size_t c = std::max(column, op_.padding); c < std::min(column + op_.window, in_.columns + op_.padding);
           ++c) {
        const std::size_t at = ((r - op_.padding) * in_.columns + c - op_.padding) * in_.channels;
        const float* __restrict x = image + at;
        for (std::size_t ch = 0; ch < in_.channels; ++ch) {
          const bool larger = first || x[ch] > y[ch];
          y[ch] = larger ? x[ch] : y[ch];
          source[ch] = larger ? static_cast<std::uint32_t>(at + ch) : source[ch];
        }
        first = false;
      }
    }
  }

  MaxPool op_;
  Shape in_;
  Shape out_;
};

class AveragePoolKernel final : public Kernel {
 public:
  AveragePoolKernel(const Shape& in, const Shape& out) : in_(in), out_(out) {}

  void forward(const ForwardCall& call) override {
    std::fill_n(call.output, call.batch * out_.elements(), 0.0f);
    for_pairs(call.batch, [&](std::size_t in, std::size_t out, float weight) {
      const float* __restrict x = call.inputs[0] + in;
      float* __restrict y = call.output + out;
      for (std::size_t ch = 0; ch < in_.channels; ++ch) y[ch] += weight * x[ch];
    });
  }

  void backward_inputs(const BackwardCall& call) override {
    if (call.input_gradients[0] == nullptr) return;
    std::fill_n(call.input_gradients[0], call.batch * in_.elements(), 0.0f);
    for_pairs(call.batch, [&](std::size_t in, std::size_t out, float weight) {
      const float* __restrict dy = call.output_gradient + out;
      float* __restrict dx = call.input_gradients[0] + in;
      for (std::size_t ch = 0; ch < in_.channels; ++ch) dx[ch] += weight * dy[ch];
    });
  }

 private:
  struct Range {
    std::size_t from;
    std::size_t to;
  };
  static Range covered(std::size_t i, std::size_t ins, std::size_t outs) {
    return {i * ins / outs, ((i + 1) * ins + outs - 1) / outs};
  }

  // Calls act(offset of a position in the batch, offset of an output that it is part of, its weight there).
  template <class Act>
  void for_pairs(std::size_t batch, const Act& act) const {
    for (std::size_t p = 0; p < batch * out_.positions(); ++p) {
      const std::size_t image = p / out_.positions() * in_.rows;
      const Range rows = covered(p % out_.positions() / out_.columns, in_.rows, out_.rows);
      const Range columns = covered(p % out_.columns, in_.columns, out_.columns);
      const float weight = 1.0f / static_cast<float>((rows.to - rows.from) * (columns.to - columns.from));
      for (std::size_t r = rows.from; r < rows.to; ++r) {
        for (std::size_t c = columns.from; c < columns.to; ++c) {
          act(((image + r) * in_.columns + c) * in_.channels, p * out_.channels, weight);
        }
      }
    }
  }

  Shape in_;
  Shape out_;
};

}  // namespace

std::unique_ptr<Kernel> make_convolution(const Convolution& op, const Shape& in, const Shape& out, Gemm gemm) {
  return std::make_unique<ConvolutionKernel>(op, in, out, gemm);
}
std::unique_ptr<Kernel> make_max_pool(const MaxPool& op, const Shape& in, const Shape& out) {
  return std::make_unique<MaxPoolKernel>(op, in, out);
}
std::unique_ptr<Kernel> make_average_pool(const Shape& in, const Shape& out) {
  return std::make_unique<AveragePoolKernel>(in, out);
}

}  // namespace clustar::bench::trainer::graph
