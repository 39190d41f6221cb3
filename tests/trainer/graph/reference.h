// Every operation straight from its definition, in double precision: forward, in training. Gradients follow by finite
// differences of it.
#pragma once

#include <cstddef>
#include <vector>

#include "bench/trainer/graph/op.h"

namespace clustar::bench::trainer::graph {

using Doubles = std::vector<double>;

// `inputs` and `parameters` as a Kernel takes them. Not for Dropout, which draws.
Doubles reference(const Op& op, const std::vector<Shape>& shapes, std::size_t batch, const std::vector<Doubles>& inputs,
                  const std::vector<Doubles>& parameters);

}  // namespace clustar::bench::trainer::graph
