#pragma once

#include <cstddef>
#include <memory>

#include "bench/trainer/graph/cuda/libraries/cudnn.h"
#include "bench/trainer/graph/kernel.h"
#include "bench/trainer/graph/op.h"
#include "bench/trainer/graph/shape.h"

namespace clustar::bench::trainer::graph::cuda {

// A convolution by cuDNN, its bias by our kernels. Of the algorithms in the order of cuDNN's heuristics the first that
// is deterministic, keeps to float32 and needs at most kMostWorkspace; `otherwise`, a kernel of the same convolution,
// takes the directions where there is none. `cudnn` outlives it.
std::unique_ptr<graph::Kernel> make_cudnn_convolution(Cudnn& cudnn, const Convolution& op, const Shape& in,
                                                      const Shape& out, std::unique_ptr<graph::Kernel> otherwise);

inline constexpr std::size_t kMostWorkspace = std::size_t{256} << 20;  // bytes

}  // namespace clustar::bench::trainer::graph::cuda
