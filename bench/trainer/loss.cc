#include "bench/trainer/loss.h"

#include <algorithm>
#include <cmath>

namespace clustar::bench::trainer {

LossSum softmax_cross_entropy(std::span<const float> outputs, std::span<const std::uint16_t> labels,
                              std::size_t classes, float scale, std::span<float> gradient) {
  LossSum sum;
  for (std::size_t row = 0; row < labels.size(); ++row) {
    const std::span<const float> z = outputs.subspan(row * classes, classes);
    const auto top = std::max_element(z.begin(), z.end());
    const std::size_t label = labels[row];
    double total = 0;
    for (const float value : z) total += std::exp(static_cast<double>(value) - static_cast<double>(*top));
    sum.loss += std::log(total) + static_cast<double>(*top) - static_cast<double>(z[label]);
    if (static_cast<std::size_t>(top - z.begin()) == label) ++sum.correct;
    if (gradient.empty()) continue;
    float* out = gradient.data() + row * classes;
    for (std::size_t j = 0; j < classes; ++j) {
      const double p = std::exp(static_cast<double>(z[j]) - static_cast<double>(*top)) / total;
      out[j] = static_cast<float>(p - (j == label ? 1.0 : 0.0)) * scale;
    }
  }
  return sum;
}

}  // namespace clustar::bench::trainer
