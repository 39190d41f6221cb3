// Plain kernels of operations on texts.
#pragma once

#include <memory>

#include "bench/trainer/graph/gemm.h"
#include "bench/trainer/graph/kernel.h"
#include "bench/trainer/graph/op.h"

namespace clustar::bench::trainer::graph {

std::unique_ptr<Kernel> make_embedding(const Embedding& op, const Shape& in);
std::unique_ptr<Kernel> make_attention(const Attention& op, const Shape& out, Gemm gemm);

}  // namespace clustar::bench::trainer::graph
