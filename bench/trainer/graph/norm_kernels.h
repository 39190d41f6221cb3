// Plain kernels of normalisations.
#pragma once

#include <memory>

#include "bench/trainer/graph/kernel.h"
#include "bench/trainer/graph/shape.h"

namespace clustar::bench::trainer::graph {

inline constexpr float kNormEpsilon = 1e-5f;
inline constexpr float kBatchNormMomentum = 0.1f;  // of a new batch in the running statistics

std::unique_ptr<Kernel> make_batch_norm(const Shape& shape);
std::unique_ptr<Kernel> make_layer_norm(const Shape& shape);

// Batch norm's state after a batch of `rows` values per channel with these statistics; `variance` is the biased one.
void update_running(std::span<float* const> states, const float* mean, const float* variance, std::size_t channels,
                    std::size_t rows);

}  // namespace clustar::bench::trainer::graph
