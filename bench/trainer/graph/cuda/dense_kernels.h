// Operations on whole vectors, or on each element alone, by launches of our kernels. The device and the products
// outlive the kernels.
#pragma once

#include <memory>

#include "bench/trainer/graph/cuda/products.h"
#include "bench/trainer/graph/kernel.h"
#include "bench/trainer/graph/op.h"
#include "bench/trainer/graph/shape.h"
#include "gdr/launch/device.h"

namespace clustar::bench::trainer::graph::cuda {

std::unique_ptr<graph::Kernel> make_linear(gdr::launch::Device& device, Products& products, const Linear& op,
                                           const Shape& in);
std::unique_ptr<graph::Kernel> make_relu(gdr::launch::Device& device, const Shape& shape);
std::unique_ptr<graph::Kernel> make_gelu(gdr::launch::Device& device, const Shape& shape);
std::unique_ptr<graph::Kernel> make_dropout(gdr::launch::Device& device, const Dropout& op, const Shape& shape);
std::unique_ptr<graph::Kernel> make_add(gdr::launch::Device& device, const Shape& shape);

}  // namespace clustar::bench::trainer::graph::cuda
