// Operations on images by launches of our kernels. The device and the products outlive the kernels.
#pragma once

#include <memory>

#include "bench/trainer/graph/cuda/products.h"
#include "bench/trainer/graph/kernel.h"
#include "bench/trainer/graph/op.h"
#include "bench/trainer/graph/shape.h"
#include "gdr/launch/device.h"

namespace clustar::bench::trainer::graph::cuda {

std::unique_ptr<graph::Kernel> make_convolution(gdr::launch::Device& device, Products& products, const Convolution& op,
                                                const Shape& in, const Shape& out);
std::unique_ptr<graph::Kernel> make_max_pool(gdr::launch::Device& device, const MaxPool& op, const Shape& in,
                                             const Shape& out);
// AdaptiveAveragePool to `out`.
std::unique_ptr<graph::Kernel> make_average_pool(gdr::launch::Device& device, const Shape& in, const Shape& out);

}  // namespace clustar::bench::trainer::graph::cuda
