// Pooling, batch norm and activations by oneDNN.
#pragma once

#include <memory>

#include "bench/trainer/graph/kernel.h"
#include "bench/trainer/graph/op.h"

namespace clustar::bench::trainer::graph {

struct OneDnnRuntime;

std::unique_ptr<Kernel> make_onednn_max_pool(const MaxPool& op, const Shape& in, const Shape& out,
                                             std::shared_ptr<OneDnnRuntime> runtime);
std::unique_ptr<Kernel> make_onednn_batch_norm(const Shape& shape, std::shared_ptr<OneDnnRuntime> runtime);
std::unique_ptr<Kernel> make_onednn_relu(const Shape& shape, std::shared_ptr<OneDnnRuntime> runtime);
std::unique_ptr<Kernel> make_onednn_gelu(const Shape& shape, std::shared_ptr<OneDnnRuntime> runtime);

}  // namespace clustar::bench::trainer::graph
