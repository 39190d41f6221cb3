// Operations on texts by launches of our kernels. The device outlives the kernels.
#pragma once

#include <memory>

#include "bench/trainer/graph/kernel.h"
#include "bench/trainer/graph/op.h"
#include "bench/trainer/graph/shape.h"
#include "gdr/launch/device.h"

namespace clustar::bench::trainer::graph::cuda {

std::unique_ptr<graph::Kernel> make_embedding(gdr::launch::Device& device, const Embedding& op, const Shape& in);
std::unique_ptr<graph::Kernel> make_attention(gdr::launch::Device& device, const Attention& op, const Shape& out);

}  // namespace clustar::bench::trainer::graph::cuda
