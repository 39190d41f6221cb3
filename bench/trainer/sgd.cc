#include "bench/trainer/sgd.h"

namespace clustar::bench::trainer {

Sgd::Sgd(std::size_t elements, float rate, float momentum, float weight_decay)
    : rate_(rate), momentum_(momentum), weight_decay_(weight_decay), velocity_(elements) {}

void Sgd::step_part(std::span<float> parameters, std::span<const float> gradients, std::size_t momentum_at) {
  const std::size_t count = parameters.size();
  const float* __restrict gradient = gradients.data();
  float* __restrict velocity = velocity_.data() + momentum_at;
  float* __restrict parameter = parameters.data();
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
