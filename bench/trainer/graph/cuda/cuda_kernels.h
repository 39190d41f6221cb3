// Operations by launches of our kernels. What a launch fails with is thrown as std::runtime_error.
#pragma once

#include <cstddef>
#include <memory>

#include "bench/trainer/graph/kernel.h"
#include "bench/trainer/graph/op.h"
#include "bench/trainer/graph/shape.h"
#include "bench/trainer/precision/precision.h"
#include "gdr/launch/device.h"
#include "transport/base/result.h"

namespace clustar::bench::trainer::graph::cuda {

void checked(const Result<void>& result);  // throws its error

// The device outlives the kernels.
void add(gdr::launch::Device& device, float* sum, const float* more, std::size_t count);
void round(gdr::launch::Device& device, float* to, const float* from, std::size_t count,
           Precision precision);  // to 16 bits
std::unique_ptr<graph::Kernel> make_linear(gdr::launch::Device& device, const Linear& op, const Shape& in);
std::unique_ptr<graph::Kernel> make_relu(gdr::launch::Device& device, const Shape& shape);
std::unique_ptr<graph::Kernel> make_convolution(gdr::launch::Device& device, const Convolution& op, const Shape& in,
                                                const Shape& out);
std::unique_ptr<graph::Kernel> make_max_pool(gdr::launch::Device& device, const MaxPool& op, const Shape& in,
                                             const Shape& out);

}  // namespace clustar::bench::trainer::graph::cuda
