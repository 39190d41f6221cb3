#include "bench/trainer/graph/cuda/dense_kernels.h"

#include <cstddef>

#include "bench/trainer/graph/cuda/dense_arguments.h"
#include "bench/trainer/graph/cuda/launches.h"
#include "bench/trainer/graph/dense_kernels.h"

namespace clustar::bench::trainer::graph::cuda {
namespace {

using gdr::launch::Device;

class LinearKernel final : public graph::Kernel {
 public:
  LinearKernel(Device& device, Products& products, const Linear& op, const Shape& in)
      : device_(device),
        products_(products),
        rows_(op.per_position ? in.positions() : 1),
        inputs_(op.per_position ? in.channels : in.elements()),
        outputs_(op.outputs),
        bias_(op.bias) {}

  std::size_t scratch(std::size_t batch) const override {
    return bias_ ? ColumnSums(batch * rows_, outputs_).scratch() : 0;
  }

  void forward(const ForwardCall& call) override {
    const std::size_t rows = call.batch * rows_;
    products_.multiply(Form::kNt, call.inputs[0], call.parameters[0], call.output, rows, outputs_, inputs_);
    if (bias_) add_bias(device_, call.output, call.parameters[1], rows, outputs_);
  }

  void backward_parameters(const BackwardCall& call) override {
    const std::size_t rows = call.batch * rows_;
    products_.multiply(Form::kTn, call.output_gradient, call.inputs[0], call.gradients[0], outputs_, inputs_, rows);
    if (bias_) sum_columns(device_, call.output_gradient, call.gradients[1], rows, outputs_, call.scratch);
  }

  void backward_inputs(const BackwardCall& call) override {
    if (call.input_gradients[0] == nullptr) return;
    products_.multiply(Form::kNn, call.output_gradient, call.parameters[0], call.input_gradients[0], call.batch * rows_,
                       inputs_, outputs_);
  }

 private:
  Device& device_;
  Products& products_;
  std::size_t rows_;  // of one example
  std::size_t inputs_;
  std::size_t outputs_;
  bool bias_;
};

// y = f(x), whose gradient is a function of dy and either x or y.
struct Activation {
  Kernel<MapArguments> value;
  Kernel<PairArguments> gradient;
  bool by_output;
};
constexpr Activation kReluActivation{kRelu, kReluGradient, true};
constexpr Activation kGeluActivation{kGelu, kGeluGradient, false};

class ActivationKernel final : public graph::Kernel {
 public:
  ActivationKernel(Device& device, const Activation& activation, std::size_t width)
      : device_(device), activation_(activation), width_(width) {}

  void forward(const ForwardCall& call) override {
    map(device_, activation_.value, call.inputs[0], call.output, call.batch * width_);
  }

  void backward_inputs(const BackwardCall& call) override {
    if (call.input_gradients[0] == nullptr) return;
    const float* const known = activation_.by_output ? call.output : call.inputs[0];
    combine(device_, activation_.gradient, known, call.output_gradient, call.input_gradients[0], call.batch * width_);
  }

 private:
  Device& device_;
  const Activation activation_;
  std::size_t width_;
};

class DropoutKernel final : public graph::Kernel {
 public:
  DropoutKernel(Device& device, const Dropout& op, std::size_t width)
      : device_(device), width_(width), rule_(dropout_rule(op)) {}

  // What each element was multiplied by.
  std::size_t saved(std::size_t batch) const override { return batch * width_; }

  void forward(const ForwardCall& call) override {
    const std::size_t count = call.batch * width_;
    if (!call.training) return map(device_, kCopy, call.inputs[0], call.output, count);
    launch_for(device_, kDropout, count,
               {.x = call.inputs[0],
                .y = call.output,
                .factors = call.saved,
                .count = count,
                .draw = call.draw,
                .dropped_below = rule_.dropped_below,
                .scale = rule_.scale});
  }

  void backward_inputs(const BackwardCall& call) override {
    if (call.input_gradients[0] == nullptr) return;
    combine(device_, kMultiply, call.output_gradient, call.saved, call.input_gradients[0], call.batch * width_);
  }

 private:
  Device& device_;
  std::size_t width_;
  DropoutRule rule_;
};

class AddKernel final : public graph::Kernel {
 public:
  AddKernel(Device& device, std::size_t width) : device_(device), width_(width) {}

  void forward(const ForwardCall& call) override {
    combine(device_, kAdd, call.inputs[0], call.inputs[1], call.output, call.batch * width_);
  }

  void backward_inputs(const BackwardCall& call) override {
    for (float* dx : call.input_gradients) {
      if (dx != nullptr) map(device_, kCopy, call.output_gradient, dx, call.batch * width_);
    }
  }

 private:
  Device& device_;
  std::size_t width_;
};

}  // namespace

std::unique_ptr<graph::Kernel> make_linear(Device& device, Products& products, const Linear& op, const Shape& in) {
  return std::make_unique<LinearKernel>(device, products, op, in);
}
std::unique_ptr<graph::Kernel> make_relu(Device& device, const Shape& shape) {
  return std::make_unique<ActivationKernel>(device, kReluActivation, shape.elements());
}
std::unique_ptr<graph::Kernel> make_gelu(Device& device, const Shape& shape) {
  return std::make_unique<ActivationKernel>(device, kGeluActivation, shape.elements());
}
std::unique_ptr<graph::Kernel> make_dropout(Device& device, const Dropout& op, const Shape& shape) {
  return std::make_unique<DropoutKernel>(device, op, shape.elements());
}
std::unique_ptr<graph::Kernel> make_add(Device& device, const Shape& shape) {
  return std::make_unique<AddKernel>(device, shape.elements());
}

}  // namespace clustar::bench::trainer::graph::cuda
