#include "bench/trainer/layer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "bench/trainer/gemm.h"

namespace clustar::bench::trainer {
namespace {

class Linear final : public Layer {
 public:
  Linear(std::size_t inputs, std::size_t outputs) : inputs_(inputs), outputs_(outputs) {}

  std::string name() const override { return fmt::format("linear {}-{}", inputs_, outputs_); }
  std::size_t inputs() const override { return inputs_; }
  std::size_t outputs() const override { return outputs_; }
  std::vector<TensorSpec> tensors() const override {
    return {{"weight", outputs_ * inputs_, inputs_}, {"bias", outputs_, 1}};
  }

  void initialise(std::span<float* const> parameters, Rng& rng) const override {
    const double bound = 1 / std::sqrt(static_cast<double>(inputs_));
    const auto fill = [&](float* values, std::size_t count) {
      for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(rng.uniform(-bound, bound));
    };
    fill(parameters[0], outputs_ * inputs_);
    fill(parameters[1], outputs_);
  }

  void forward(const LayerCall& call) const override {
    gemm({.a = Trans::kNo, .b = Trans::kYes, .m = call.batch, .n = outputs_, .k = inputs_}, call.x, call.parameters[0],
         call.y);
    const float* bias = call.parameters[1];
    for (std::size_t row = 0; row < call.batch; ++row) {
      float* y = call.y + row * outputs_;
      for (std::size_t j = 0; j < outputs_; ++j) y[j] += bias[j];
    }
  }

  void backward_parameters(const LayerCall& call) const override {
    gemm({.a = Trans::kYes, .b = Trans::kNo, .m = outputs_, .n = inputs_, .k = call.batch}, call.dy, call.x,
         call.gradients[0]);
    float* bias = call.gradients[1];
    std::fill(bias, bias + outputs_, 0.0f);
    for (std::size_t row = 0; row < call.batch; ++row) {
      const float* dy = call.dy + row * outputs_;
      for (std::size_t j = 0; j < outputs_; ++j) bias[j] += dy[j];
    }
  }

  void backward_input(const LayerCall& call) const override {
    gemm({.a = Trans::kNo, .b = Trans::kNo, .m = call.batch, .n = inputs_, .k = outputs_}, call.dy, call.parameters[0],
         call.dx);
  }

 private:
  std::size_t inputs_;
  std::size_t outputs_;
};

class Relu final : public Layer {
 public:
  explicit Relu(std::size_t width) : width_(width) {}

  std::string name() const override { return "relu"; }
  std::size_t inputs() const override { return width_; }
  std::size_t outputs() const override { return width_; }

  void forward(const LayerCall& call) const override {
    for (std::size_t i = 0; i < call.batch * width_; ++i) call.y[i] = call.x[i] > 0 ? call.x[i] : 0.0f;
  }

  void backward_input(const LayerCall& call) const override {
    for (std::size_t i = 0; i < call.batch * width_; ++i) call.dx[i] = call.y[i] > 0 ? call.dy[i] : 0.0f;
  }

 private:
  std::size_t width_;
};

}  // namespace

std::unique_ptr<Layer> make_linear(std::size_t inputs, std::size_t outputs) {
  return std::make_unique<Linear>(inputs, outputs);
}

std::unique_ptr<Layer> make_relu(std::size_t width) { return std::make_unique<Relu>(width); }

}  // namespace clustar::bench::trainer
