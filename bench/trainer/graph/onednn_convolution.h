// Convolution by oneDNN.
#pragma once

#include <memory>

#include "bench/trainer/graph/kernel.h"
#include "bench/trainer/graph/op.h"

namespace clustar::bench::trainer::graph {

struct OneDnnRuntime;

std::unique_ptr<Kernel> make_onednn_convolution(const Convolution& op, const Shape& in, const Shape& out,
                                                std::shared_ptr<OneDnnRuntime> runtime);

}  // namespace clustar::bench::trainer::graph
