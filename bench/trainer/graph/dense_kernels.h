// Plain kernels of operations on whole vectors, or on each element alone.
#pragma once

#include <cstdint>
#include <memory>

#include "bench/trainer/graph/gemm.h"
#include "bench/trainer/graph/kernel.h"
#include "bench/trainer/graph/op.h"

namespace clustar::bench::trainer::graph {

// Of 16 bits that are drawn for an element: below `dropped_below` it is dropped, otherwise multiplied by `scale`.
struct DropoutRule {
  std::uint32_t dropped_below = 0;
  float scale = 1;
};
DropoutRule dropout_rule(const Dropout& op);

std::unique_ptr<Kernel> make_linear(const Linear& op, const Shape& in, Gemm gemm);
std::unique_ptr<Kernel> make_relu(const Shape& shape);
std::unique_ptr<Kernel> make_gelu(const Shape& shape);
std::unique_ptr<Kernel> make_dropout(const Dropout& op, const Shape& shape);
std::unique_ptr<Kernel> make_add(const Shape& shape);

}  // namespace clustar::bench::trainer::graph
