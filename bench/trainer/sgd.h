// Stochastic gradient descent with momentum and weight decay, as PyTorch's SGD without dampening:
// v = m v + (g + decay w); w = w - rate v.
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace clustar::bench::trainer {

struct SgdOptions {
  float rate = 0;
  float momentum = 0;
  float weight_decay = 0;
};

class Sgd {
 public:
  Sgd(std::size_t elements, float rate, float momentum, float weight_decay = 0);
  // Element by element in a fixed order: equal inputs give equal bits on every rank.
  void step(std::span<float> parameters, std::span<const float> gradients) {
    step(parameters, gradients, 0, velocity_.size());
  }
  // The same for `count` elements from `first` on only. Each element once a step, in whatever order.
  void step(std::span<float> parameters, std::span<const float> gradients, std::size_t first, std::size_t count) {
    step_part(parameters.subspan(first, count), gradients.subspan(first, count), first);
  }
  // The same for elements that lie elsewhere than their momentum, which is from `momentum_at` on.
  void step_part(std::span<float> parameters, std::span<const float> gradients, std::size_t momentum_at);

  std::span<float> momentum() { return velocity_; }
  void set_momentum(std::vector<float> momentum) { velocity_ = std::move(momentum); }

 private:
  float rate_;
  float momentum_;
  float weight_decay_;
  std::vector<float> velocity_;
};

}  // namespace clustar::bench::trainer
