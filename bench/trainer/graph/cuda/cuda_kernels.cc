#include "bench/trainer/graph/cuda/cuda_kernels.h"

#include <algorithm>
#include <limits>
#include <stdexcept>

#include "bench/trainer/graph/cuda/arguments.h"

namespace clustar::bench::trainer::graph::cuda {
namespace {

using gdr::launch::Device;
using gdr::launch::Grid;

// Windows of so many floats, or of one image, are in scratch at a time.
constexpr std::size_t kWindowFloats = 4u << 20;

int dimension(std::size_t value) {
  if (value > static_cast<std::size_t>(std::numeric_limits<int>::max())) {
    throw std::runtime_error("a matrix for a CUDA kernel has at most 2147483647 rows and columns");
  }
  return static_cast<int>(value);
}

unsigned small(std::size_t value) { return static_cast<unsigned>(dimension(value)); }

unsigned tiles(std::size_t count) { return static_cast<unsigned>((count + kTile - 1) / kTile); }

void multiply(Device& device, const gdr::Kernel<GemmArguments>& kernel, const float* a, const float* b, float* c,
              std::size_t m, std::size_t n, std::size_t k) {
  if (m == 0 || n == 0) return;
  const Grid grid{.x = tiles(m), .y = tiles(n), .threads = kThreads};
  checked(
      device.launch(kernel, grid, {.a = a, .b = b, .c = c, .m = dimension(m), .n = dimension(n), .k = dimension(k)}));
}

void add_bias(Device& device, float* values, const float* bias, std::size_t rows, std::size_t columns) {
  const std::size_t count = rows * columns;
  checked(device.launch(kAddBias, device.grid_for(count, kThreads),
                        {.values = values, .bias = bias, .count = count, .columns = small(columns)}));
}

void sum_columns(Device& device, const float* values, float* sums, std::size_t rows, std::size_t columns) {
  const Grid grid{.x = static_cast<unsigned>((columns + kSumColumns - 1) / kSumColumns), .y = 1, .threads = kThreads};
  checked(device.launch(kColumnSums, grid, {.values = values, .sums = sums, .rows = rows, .columns = small(columns)}));
}

class LinearKernel final : public graph::Kernel {
 public:
  LinearKernel(Device& device, const Linear& op, const Shape& in)
      : device_(device),
        rows_(op.per_position ? in.positions() : 1),
        inputs_(op.per_position ? in.channels : in.elements()),
        outputs_(op.outputs),
        bias_(op.bias) {}

  void forward(const ForwardCall& call) override {
    const std::size_t rows = call.batch * rows_;
    multiply(device_, kGemmNt, call.inputs[0], call.parameters[0], call.output, rows, outputs_, inputs_);
    if (bias_) add_bias(device_, call.output, call.parameters[1], rows, outputs_);
  }

  void backward_parameters(const BackwardCall& call) override {
    const std::size_t rows = call.batch * rows_;
    multiply(device_, kGemmTn, call.output_gradient, call.inputs[0], call.gradients[0], outputs_, inputs_, rows);
    if (bias_) sum_columns(device_, call.output_gradient, call.gradients[1], rows, outputs_);
  }

  void backward_inputs(const BackwardCall& call) override {
    if (call.input_gradients[0] == nullptr) return;
    multiply(device_, kGemmNn, call.output_gradient, call.parameters[0], call.input_gradients[0], call.batch * rows_,
             inputs_, outputs_);
  }

 private:
  Device& device_;
  std::size_t rows_;  // of one example
  std::size_t inputs_;
  std::size_t outputs_;
  bool bias_;
};

class ReluKernel final : public graph::Kernel {
 public:
  ReluKernel(Device& device, std::size_t width) : device_(device), width_(width) {}

  void forward(const ForwardCall& call) override {
    const std::size_t count = call.batch * width_;
    checked(device_.launch(kRelu, device_.grid_for(count, kThreads),
                           {.x = call.inputs[0], .y = call.output, .count = count}));
  }

  void backward_inputs(const BackwardCall& call) override {
    if (call.input_gradients[0] == nullptr) return;
    const std::size_t count = call.batch * width_;
    checked(
        device_.launch(kReluGradient, device_.grid_for(count, kThreads),
                       {.y = call.output, .dy = call.output_gradient, .dx = call.input_gradients[0], .count = count}));
  }

 private:
  Device& device_;
  std::size_t width_;
};

WindowGeometry geometry_of(const Shape& in, const Shape& out, std::size_t window, std::size_t stride,
                           std::size_t padding) {
  return {.rows = small(in.rows),
          .columns = small(in.columns),
          .channels = small(in.channels),
          .out_rows = small(out.rows),
          .out_columns = small(out.columns),
          .window = small(window),
          .stride = small(stride),
          .padding = small(padding)};
}

// A product of matrices once the windows lie as rows, as the plain kernel does it; whole images at a time.
class ConvolutionKernel final : public graph::Kernel {
 public:
  ConvolutionKernel(Device& device, const Convolution& op, const Shape& in, const Shape& out)
      : device_(device),
        filters_(op.filters),
        bias_(op.bias),
        in_(in),
        out_(out),
        window_(op.kernel * op.kernel * in.channels),
        group_(std::max<std::size_t>(1, kWindowFloats / (window_ * out.positions()))),
        geometry_(geometry_of(in, out, op.kernel, op.stride, op.padding)) {}

  // The windows of a group of images, and one group's part of the weights' gradient.
  std::size_t scratch(std::size_t batch) const override {
    const std::size_t images = std::min(group_, batch);
    return images * out_.positions() * window_ + (images < batch ? filters_ * window_ : 0);
  }

  void forward(const ForwardCall& call) override {
    for_groups(call.batch, [&](std::size_t first, std::size_t images) {
      const std::size_t windows = gather(call.inputs[0], first, images, call.scratch);
      multiply(device_, kGemmNt, call.scratch, call.parameters[0], call.output + first * out_.elements(), windows,
               filters_, window_);
    });
    if (bias_) add_bias(device_, call.output, call.parameters[1], call.batch * out_.positions(), filters_);
  }

  void backward_parameters(const BackwardCall& call) override {
    float* const part = call.scratch + group_ * out_.positions() * window_;
    for_groups(call.batch, [&](std::size_t first, std::size_t images) {
      const std::size_t windows = gather(call.inputs[0], first, images, call.scratch);
      multiply(device_, kGemmTn, call.output_gradient + first * out_.elements(), call.scratch,
               first == 0 ? call.gradients[0] : part, filters_, window_, windows);
      if (first > 0) add(device_, call.gradients[0], part, filters_ * window_);
    });
    if (bias_) {
      sum_columns(device_, call.output_gradient, call.gradients[1], call.batch * out_.positions(), filters_);
    }
  }

  void backward_inputs(const BackwardCall& call) override {
    if (call.input_gradients[0] == nullptr) return;
    for_groups(call.batch, [&](std::size_t first, std::size_t images) {
      multiply(device_, kGemmNn, call.output_gradient + first * out_.elements(), call.parameters[0], call.scratch,
               images * out_.positions(), window_, filters_);
      const std::size_t count = images * in_.elements();
      checked(device_.launch(kScatterWindows, device_.grid_for(count, kThreads),
                             {.windows = call.scratch,
                              .images = call.input_gradients[0] + first * in_.elements(),
                              .count = count,
                              .geometry = geometry_}));
    });
  }

 private:
  template <class Do>
  void for_groups(std::size_t batch, const Do& act) const {
    for (std::size_t first = 0; first < batch; first += group_) act(first, std::min(group_, batch - first));
  }

  // How many windows there are.
  std::size_t gather(const float* x, std::size_t first, std::size_t images, float* windows) {
    const std::size_t count = images * out_.positions() * window_;
    checked(device_.launch(
        kGatherWindows, device_.grid_for(count, kThreads),
        {.images = x + first * in_.elements(), .windows = windows, .count = count, .geometry = geometry_}));
    return images * out_.positions();
  }

  Device& device_;
  std::size_t filters_;
  bool bias_;
  Shape in_;
  Shape out_;
  std::size_t window_;  // floats
  std::size_t group_;   // images
  WindowGeometry geometry_;
};

class MaxPoolKernel final : public graph::Kernel {
 public:
  MaxPoolKernel(Device& device, const MaxPool& op, const Shape& in, const Shape& out)
      : device_(device), in_(in), out_(out), geometry_(geometry_of(in, out, op.window, op.stride, op.padding)) {}

  // Where in its image each output's value came from: 32-bit integers.
  std::size_t saved(std::size_t batch) const override { return batch * out_.elements(); }

  void forward(const ForwardCall& call) override {
    const std::size_t count = call.batch * out_.elements();
    checked(device_.launch(kMaxPool, device_.grid_for(count, kThreads),
                           {.x = call.inputs[0],
                            .y = call.output,
                            .sources = reinterpret_cast<unsigned*>(call.saved),
                            .count = count,
                            .geometry = geometry_}));
  }

  void backward_inputs(const BackwardCall& call) override {
    if (call.input_gradients[0] == nullptr) return;
    const std::size_t count = call.batch * in_.elements();
    checked(device_.launch(kMaxPoolGradient, device_.grid_for(count, kThreads),
                           {.sources = reinterpret_cast<const unsigned*>(call.saved),
                            .dy = call.output_gradient,
                            .dx = call.input_gradients[0],
                            .count = count,
                            .geometry = geometry_}));
  }

 private:
  Device& device_;
  Shape in_;
  Shape out_;
  WindowGeometry geometry_;
};

}  // namespace

void checked(const Result<void>& result) {
  if (!result) throw std::runtime_error(result.error().message);
}

void add(Device& device, float* sum, const float* more, std::size_t count) {
  checked(device.launch(gdr::kSumF32, device.grid_for(count, kThreads), {.sum = sum, .more = more, .count = count}));
}

void round(Device& device, float* to, const float* from, std::size_t count, Precision precision) {
  const gdr::Kernel<RoundArguments>& kernel = precision == Precision::kFloat16 ? kRoundF16 : kRoundBf16;
  checked(device.launch(kernel, device.grid_for(count, kThreads), {.from = from, .to = to, .count = count}));
}

std::unique_ptr<graph::Kernel> make_linear(Device& device, const Linear& op, const Shape& in) {
  return std::make_unique<LinearKernel>(device, op, in);
}
std::unique_ptr<graph::Kernel> make_relu(Device& device, const Shape& shape) {
  return std::make_unique<ReluKernel>(device, shape.elements());
}
std::unique_ptr<graph::Kernel> make_convolution(Device& device, const Convolution& op, const Shape& in,
                                                const Shape& out) {
  return std::make_unique<ConvolutionKernel>(device, op, in, out);
}
std::unique_ptr<graph::Kernel> make_max_pool(Device& device, const MaxPool& op, const Shape& in, const Shape& out) {
  return std::make_unique<MaxPoolKernel>(device, op, in, out);
}

}  // namespace clustar::bench::trainer::graph::cuda
