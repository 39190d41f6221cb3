#include "bench/trainer/parallel/gradient_sum.h"

namespace clustar::bench::trainer::parallel {

void GradientSum::add(std::span<const float> gradients) {
  if (empty_) {
    sum_.assign(gradients.begin(), gradients.end());
    empty_ = false;
    return;
  }
  for (std::size_t i = 0; i < sum_.size(); ++i) sum_[i] += gradients[i];
}

void GradientSum::add_to(std::span<float> gradients, std::size_t first, std::size_t count) const {
  if (empty_) return;
  for (std::size_t i = first; i < first + count; ++i) gradients[i] += sum_[i];
}

}  // namespace clustar::bench::trainer::parallel
