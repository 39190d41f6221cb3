// Plain kernels of operations on whole vectors, or on each element alone.
#pragma once

#include <memory>

#include "bench/trainer/graph/gemm.h"
#include "bench/trainer/graph/kernel.h"
#include "bench/trainer/graph/op.h"

namespace clustar::bench::trainer::graph {

std::unique_ptr<Kernel> make_linear(const Linear& op, const Shape& in, Gemm gemm);
std::unique_ptr<Kernel> make_relu(const Shape& shape);
std::unique_ptr<Kernel> make_gelu(const Shape& shape);
std::unique_ptr<Kernel> make_dropout(const Dropout& op, const Shape& shape);
std::unique_ptr<Kernel> make_add(const Shape& shape);

}  // namespace clustar::bench::trainer::graph
