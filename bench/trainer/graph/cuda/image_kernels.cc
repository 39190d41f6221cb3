#include "bench/trainer/graph/cuda/image_kernels.h"

#include <algorithm>
#include <cstddef>

#include "bench/trainer/graph/cuda/dense_arguments.h"
#include "bench/trainer/graph/cuda/image_arguments.h"
#include "bench/trainer/graph/cuda/launches.h"

namespace clustar::bench::trainer::graph::cuda {
namespace {

using gdr::launch::Device;

// Windows of so many floats, or of one image, are in scratch at a time.
constexpr std::size_t kWindowFloats = 4u << 20;

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
  ConvolutionKernel(Device& device, Products& products, const Convolution& op, const Shape& in, const Shape& out)
      : device_(device),
        products_(products),
        filters_(op.filters),
        bias_(op.bias),
        in_(in),
        out_(out),
        window_(op.kernel * op.kernel * in.channels),
        group_(std::max<std::size_t>(1, kWindowFloats / (window_ * out.positions()))),
        geometry_(geometry_of(in, out, op.kernel, op.stride, op.padding)) {}

  // The windows of a group of images, and one group's part of the weights' gradient; afterwards what sums the bias's.
  std::size_t scratch(std::size_t batch) const override {
    const std::size_t images = std::min(group_, batch);
    const std::size_t sums = bias_ ? ColumnSums(batch * out_.positions(), filters_).scratch() : 0;
    return std::max(images * out_.positions() * window_ + (images < batch ? filters_ * window_ : 0), sums);
  }

  void forward(const ForwardCall& call) override {
    for_groups(call.batch, [&](std::size_t first, std::size_t images) {
      const std::size_t windows = gather(call.inputs[0], first, images, call.scratch);
      products_.multiply(Form::kNt, call.scratch, call.parameters[0], call.output + first * out_.elements(), windows,
                         filters_, window_);
    });
    if (bias_) add_bias(device_, call.output, call.parameters[1], call.batch * out_.positions(), filters_);
  }

  void backward_parameters(const BackwardCall& call) override {
    float* const part = call.scratch + group_ * out_.positions() * window_;
    for_groups(call.batch, [&](std::size_t first, std::size_t images) {
      const std::size_t windows = gather(call.inputs[0], first, images, call.scratch);
      products_.multiply(Form::kTn, call.output_gradient + first * out_.elements(), call.scratch,
                         first == 0 ? call.gradients[0] : part, filters_, window_, windows);
      if (first > 0) add(device_, call.gradients[0], part, filters_ * window_);
    });
    if (bias_) {
      sum_columns(device_, call.output_gradient, call.gradients[1], call.batch * out_.positions(), filters_,
                  call.scratch);
    }
  }

  void backward_inputs(const BackwardCall& call) override {
    if (call.input_gradients[0] == nullptr) return;
    for_groups(call.batch, [&](std::size_t first, std::size_t images) {
      products_.multiply(Form::kNn, call.output_gradient + first * out_.elements(), call.parameters[0], call.scratch,
                         images * out_.positions(), window_, filters_);
      const std::size_t count = images * in_.elements();
      launch_for(device_, kScatterWindows, count,
                 {.windows = call.scratch,
                  .images = call.input_gradients[0] + first * in_.elements(),
                  .count = count,
                  .geometry = geometry_});
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
    launch_for(device_, kGatherWindows, count,
               {.images = x + first * in_.elements(), .windows = windows, .count = count, .geometry = geometry_});
    return images * out_.positions();
  }

  Device& device_;
  Products& products_;
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
    launch_for(device_, kMaxPool, count,
               {.x = call.inputs[0],
                .y = call.output,
                .sources = reinterpret_cast<unsigned*>(call.saved),
                .count = count,
                .geometry = geometry_});
  }

  void backward_inputs(const BackwardCall& call) override {
    if (call.input_gradients[0] == nullptr) return;
    const std::size_t count = call.batch * in_.elements();
    launch_for(device_, kMaxPoolGradient, count,
               {.sources = reinterpret_cast<const unsigned*>(call.saved),
                .dy = call.output_gradient,
                .dx = call.input_gradients[0],
                .count = count,
                .geometry = geometry_});
  }

 private:
  Device& device_;
  Shape in_;
  Shape out_;
  WindowGeometry geometry_;
};

class AveragePoolKernel final : public graph::Kernel {
 public:
  AveragePoolKernel(Device& device, const Shape& in, const Shape& out)
      : device_(device),
        in_(in),
        out_(out),
        geometry_{.rows = small(in.rows),
                  .columns = small(in.columns),
                  .channels = small(in.channels),
                  .out_rows = small(out.rows),
                  .out_columns = small(out.columns)} {}

  void forward(const ForwardCall& call) override {
    const std::size_t count = call.batch * out_.elements();
    launch_for(device_, kAveragePool, count,
               {.x = call.inputs[0], .y = call.output, .count = count, .geometry = geometry_});
  }

  void backward_inputs(const BackwardCall& call) override {
    if (call.input_gradients[0] == nullptr) return;
    const std::size_t count = call.batch * in_.elements();
    launch_for(device_, kAveragePoolGradient, count,
               {.dy = call.output_gradient, .dx = call.input_gradients[0], .count = count, .geometry = geometry_});
  }

 private:
  Device& device_;
  Shape in_;
  Shape out_;
  PoolGeometry geometry_;
};

}  // namespace

std::unique_ptr<graph::Kernel> make_convolution(Device& device, Products& products, const Convolution& op,
                                                const Shape& in, const Shape& out) {
  return std::make_unique<ConvolutionKernel>(device, products, op, in, out);
}
std::unique_ptr<graph::Kernel> make_max_pool(Device& device, const MaxPool& op, const Shape& in, const Shape& out) {
  return std::make_unique<MaxPoolKernel>(device, op, in, out);
}
std::unique_ptr<graph::Kernel> make_average_pool(Device& device, const Shape& in, const Shape& out) {
  return std::make_unique<AveragePoolKernel>(device, in, out);
}

}  // namespace clustar::bench::trainer::graph::cuda
