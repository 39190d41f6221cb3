// Normalisations by launches of our kernels. The device outlives the kernels.
#pragma once

#include <memory>

#include "bench/trainer/graph/kernel.h"
#include "bench/trainer/graph/shape.h"
#include "gdr/launch/device.h"

namespace clustar::bench::trainer::graph::cuda {

std::unique_ptr<graph::Kernel> make_batch_norm(gdr::launch::Device& device, const Shape& shape);
std::unique_ptr<graph::Kernel> make_layer_norm(gdr::launch::Device& device, const Shape& shape);

}  // namespace clustar::bench::trainer::graph::cuda
