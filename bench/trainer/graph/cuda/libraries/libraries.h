// What computes products and convolutions on a GPU: NVIDIA's libraries or our kernels, as a run asks for.
#pragma once

#include <memory>
#include <string>

#include "bench/trainer/graph/cuda/libraries/cublas.h"
#include "bench/trainer/graph/cuda/libraries/cudnn.h"
#include "bench/trainer/graph/cuda/libraries/options.h"
#include "gdr/launch/device.h"
#include "transport/base/result.h"

namespace clustar::bench::trainer::graph::cuda {

struct Libraries {
  std::unique_ptr<Cublas> cublas{};  // null: our kernels compute all
  std::unique_ptr<Cudnn> cudnn{};    // null: convolutions are our kernels' and `cublas`'s
  std::string missing{};             // why one that was looked for is not there

  std::string text() const;  // "cublas 13.1, cudnn 9.19", or "own kernels"
};

// `device` outlives them. kUnavailable: what `options` names or insists on is not there; where they do not, kAuto does
// without. On an emulated device nothing is looked for that is not named.
Result<Libraries> open_libraries(gdr::launch::Device& device, const MathOptions& options);

}  // namespace clustar::bench::trainer::graph::cuda
