#include "bench/trainer/sgd.h"

namespace clustar::bench::trainer {

Sgd::Sgd(std::size_t elements, float rate, float momentum) : rate_(rate), momentum_(momentum), velocity_(elements) {}

void Sgd::step(std::span<float> parameters, std::span<const float> gradients, std::size_t first, std::size_t count) {
  for (std::size_t i = first; i < first + count; ++i) {
    velocity_[i] = momentum_ * velocity_[i] + gradients[i];
    parameters[i] -= rate_ * velocity_[i];
  }
}

}  // namespace clustar::bench::trainer
