// Softmax cross entropy, and how many examples are right.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace clustar::bench::trainer {

struct LossSum {
  double loss = 0;          // summed over the examples, natural logarithm
  std::size_t correct = 0;  // the label has the largest output (the first of equals)
};

// `outputs` is labels.size() x classes. When `gradient` is not empty it receives the loss's gradient by the outputs
// times `scale` (1 / global batch makes the sum over all ranks the gradient of the mean).
LossSum softmax_cross_entropy(std::span<const float> outputs, std::span<const std::uint16_t> labels,
                              std::size_t classes, float scale, std::span<float> gradient);

}  // namespace clustar::bench::trainer
