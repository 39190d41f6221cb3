#include "bench/trainer/sgd.h"

namespace clustar::bench::trainer {

Sgd::Sgd(std::size_t elements, float rate, float momentum, float weight_decay)
    : rate_(rate), momentum_(momentum), weight_decay_(weight_decay), velocity_(elements) {}

void Sgd::step(std::span<float> parameters, std::span<const float> gradients, std::size_t first, std::size_t count) {
  const float* __restrict gradient = gradients.data() + first;
  float* __restrict velocity = velocity_.data() + first;
  float* __restrict parameter = parameters.data() + first;
  if (weight_decay_ == 0) {  // not even a product with zero: an infinite parameter would make it NaN
    for (std::size_t i = 0; i < count; ++i) {
      velocity[i] = momentum_ * velocity[i] + gradient[i];
      parameter[i] -= rate_ * velocity[i];
    }
    return;
  }
  for (std::size_t i = 0; i < count; ++i) {
    velocity[i] = momentum_ * velocity[i] + (gradient[i] + weight_decay_ * parameter[i]);
    parameter[i] -= rate_ * velocity[i];
  }
}

}  // namespace clustar::bench::trainer
