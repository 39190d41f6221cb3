// Stochastic gradient descent with momentum and weight decay, as PyTorch's SGD without dampening:
// v = m v + (g + decay w); w = w - rate v.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace clustar::bench::trainer {

class Sgd {
 public:
  Sgd(std::size_t elements, float rate, float momentum, float weight_decay = 0);
  // Element by element in a fixed order: equal inputs give equal bits on every rank.
  void step(std::span<float> parameters, std::span<const float> gradients) {
    step(parameters, gradients, 0, velocity_.size());
  }
  // The same for `count` elements from `first` on only. Each element once a step, in whatever order.
  void step(std::span<float> parameters, std::span<const float> gradients, std::size_t first, std::size_t count);
  // Of each element, for checkpoints.
  std::span<float> velocity() { return velocity_; }

 private:
  float rate_;
  float momentum_;
  float weight_decay_;
  std::vector<float> velocity_;
};

}  // namespace clustar::bench::trainer
