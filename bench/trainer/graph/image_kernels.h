// Plain kernels of operations on images.
#pragma once

#include <memory>

#include "bench/trainer/graph/gemm.h"
#include "bench/trainer/graph/kernel.h"
#include "bench/trainer/graph/op.h"

namespace clustar::bench::trainer::graph {

std::unique_ptr<Kernel> make_convolution(const Convolution& op, const Shape& in, const Shape& out, Gemm gemm);
std::unique_ptr<Kernel> make_max_pool(const MaxPool& op, const Shape& in, const Shape& out);
// AdaptiveAveragePool to `out`.
std::unique_ptr<Kernel> make_average_pool(const Shape& in, const Shape& out);

}  // namespace clustar::bench::trainer::graph
