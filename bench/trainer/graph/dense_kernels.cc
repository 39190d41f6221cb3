#include "bench/trainer/graph/dense_kernels.h"

#include <algorithm>
#include <cmath>

namespace clustar::bench::trainer::graph {
namespace {

class LinearKernel final : public Kernel {
 public:
  LinearKernel(const Linear& op, const Shape& in, Gemm gemm)
      : rows_(op.per_position ? in.positions() : 1),
        inputs_(op.per_position ? in.channels : in.elements()),
        outputs_(op.outputs),
        bias_(op.bias),
        gemm_(gemm) {}

  void forward(const ForwardCall& call) override {
    const std::size_t rows = call.batch * rows_;
    gemm_({.a = Trans::kNo, .b = Trans::kYes, .m = rows, .n = outputs_, .k = inputs_}, call.inputs[0],
          call.parameters[0], call.output);
    if (!bias_) return;
    const float* __restrict bias = call.parameters[1];
    for (std::size_t row = 0; row < rows; ++row) {
      float* __restrict y = call.output + row * outputs_;
      for (std::size_t j = 0; j < outputs_; ++j) y[j] += bias[j];
    }
  }

  void backward_parameters(const BackwardCall& call) override {
    const std::size_t rows = call.batch * rows_;
    gemm_({.a = Trans::kYes, .b = Trans::kNo, .m = outputs_, .n = inputs_, .k = rows}, call.output_gradient,
          call.inputs[0], call.gradients[0]);
    if (!bias_) return;
    float* __restrict bias = call.gradients[1];
    std::fill_n(bias, outputs_, 0.0f);
    for (std::size_t row = 0; row < rows; ++row) {
      const float* __restrict dy = call.output_gradient + row * outputs_;
      for (std::size_t j = 0; j < outputs_; ++j) bias[j] += dy[j];
    }
  }

  void backward_inputs(const BackwardCall& call) override {
    if (call.input_gradients[0] == nullptr) return;
    gemm_({.a = Trans::kNo, .b = Trans::kNo, .m = call.batch * rows_, .n = inputs_, .k = outputs_},
          call.output_gradient, call.parameters[0], call.input_gradients[0]);
  }

 private:
  std::size_t rows_;  // of one example
  std::size_t inputs_;
  std::size_t outputs_;
  bool bias_;
  Gemm gemm_;
};

class ReluKernel final : public Kernel {
 public:
  explicit ReluKernel(std::size_t width) : width_(width) {}

  void forward(const ForwardCall& call) override {
    const float* __restrict x = call.inputs[0];
    float* __restrict y = call.output;
    for (std::size_t i = 0; i < call.batch * width_; ++i) y[i] = x[i] > 0 ? x[i] : 0.0f;
  }

  void backward_inputs(const BackwardCall& call) override {
    const float* __restrict y = call.output;
    const float* __restrict dy = call.output_gradient;
    float* __restrict dx = call.input_gradients[0];
    if (dx == nullptr) return;
    for (std::size_t i = 0; i < call.batch * width_; ++i) dx[i] = y[i] > 0 ? dy[i] : 0.0f;
  }

 private:
  std::size_t width_;
};

class GeluKernel final : public Kernel {
 public:
  explicit GeluKernel(std::size_t width) : width_(width) {}

  void forward(const ForwardCall& call) override {
    const float* x = call.inputs[0];
    for (std::size_t i = 0; i < call.batch * width_; ++i) call.output[i] = 0.5f * x[i] * (1 + std::tanh(inner(x[i])));
  }

  void backward_inputs(const BackwardCall& call) override {
    float* dx = call.input_gradients[0];
    if (dx == nullptr) return;
    for (std::size_t i = 0; i < call.batch * width_; ++i) {
      const float x = call.inputs[0][i];
      const float t = std::tanh(inner(x));
      const float slope = kRoot * (1 + 3 * kCubic * x * x);
      dx[i] = call.output_gradient[i] * (0.5f * (1 + t) + 0.5f * x * (1 - t * t) * slope);
    }
  }

 private:
  static constexpr float kRoot = 0.7978845608f;  // sqrt(2 / pi)
  static constexpr float kCubic = 0.044715f;
  static float inner(float x) { return kRoot * (x + kCubic * x * x * x); }

  std::size_t width_;
};

class DropoutKernel final : public Kernel {
 public:
  DropoutKernel(const Dropout& op, std::size_t width) : width_(width), rule_(dropout_rule(op)) {}

  std::size_t saved(std::size_t batch) const override { return batch * width_; }

  void forward(const ForwardCall& call) override {
    const std::size_t count = call.batch * width_;
    const float* x = call.inputs[0];
    if (!call.training) {
      std::copy_n(x, count, call.output);
      return;
    }
    // One word decides about four elements.
    for (std::size_t i = 0; i < count; i += 4) {
      const std::uint64_t word = mix64(call.draw + i * kGoldenGamma);
      for (std::size_t j = i; j < std::min(i + 4, count); ++j) {
        call.saved[j] = (word >> (16 * (j - i)) & 0xffff) < rule_.dropped_below ? 0.0f : rule_.scale;
      }
    }
    for (std::size_t i = 0; i < count; ++i) call.output[i] = x[i] * call.saved[i];
  }

  void backward_inputs(const BackwardCall& call) override {
    float* dx = call.input_gradients[0];
    if (dx == nullptr) return;
    for (std::size_t i = 0; i < call.batch * width_; ++i) dx[i] = call.output_gradient[i] * call.saved[i];
  }

 private:
  std::size_t width_;
  DropoutRule rule_;
};

class AddKernel final : public Kernel {
 public:
  explicit AddKernel(std::size_t width) : width_(width) {}

  void forward(const ForwardCall& call) override {
    const float* __restrict a = call.inputs[0];
    const float* __restrict b = call.inputs[1];
    float* __restrict y = call.output;
    for (std::size_t i = 0; i < call.batch * width_; ++i) y[i] = a[i] + b[i];
  }

  void backward_inputs(const BackwardCall& call) override {
    for (float* dx : call.input_gradients) {
      if (dx != nullptr) std::copy_n(call.output_gradient, call.batch * width_, dx);
    }
  }

 private:
  std::size_t width_;
};

}  // namespace

DropoutRule dropout_rule(const Dropout& op) {
  constexpr double kSteps = 65536;  // of the probability
  return {static_cast<std::uint32_t>(op.probability * kSteps + 0.5), static_cast<float>(1 / (1 - op.probability))};
}

std::unique_ptr<Kernel> make_linear(const Linear& op, const Shape& in, Gemm gemm) {
  return std::make_unique<LinearKernel>(op, in, gemm);
}
std::unique_ptr<Kernel> make_relu(const Shape& shape) { return std::make_unique<ReluKernel>(shape.elements()); }
std::unique_ptr<Kernel> make_gelu(const Shape& shape) { return std::make_unique<GeluKernel>(shape.elements()); }
std::unique_ptr<Kernel> make_dropout(const Dropout& op, const Shape& shape) {
  return std::make_unique<DropoutKernel>(op, shape.elements());
}
std::unique_ptr<Kernel> make_add(const Shape& shape) { return std::make_unique<AddKernel>(shape.elements()); }

}  // namespace clustar::bench::trainer::graph
