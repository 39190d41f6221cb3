#include "bench/trainer/graph/cuda/libraries/libraries.h"

#include <fmt/format.h>

#include <utility>

namespace clustar::bench::trainer::graph::cuda {

using gdr::launch::Device;

const char* to_string(MathChoice choice) {
  switch (choice) {
    case MathChoice::kKernels: return "kernels";
    case MathChoice::kLibraries: return "libraries";
    case MathChoice::kAuto: break;
  }
  return "auto";
}

std::string Libraries::text() const {
  if (cublas == nullptr) return "own kernels";
  std::string all = "cublas " + cublas->version();
  if (cudnn != nullptr) all += ", cudnn " + cudnn->version();
  return all;
}

Result<Libraries> open_libraries(Device& device, const MathOptions& options) {
  Libraries all;
  if (options.choice == MathChoice::kKernels) return all;
  const bool names_cudnn = !options.cudnn.empty() && options.cudnn != kNoLibrary;
  const bool insisted = options.choice == MathChoice::kLibraries || !options.cublas.empty() || names_cudnn;
  const auto looked_for = [&](const std::string& name) { return !name.empty() || !device.emulated(); };
  if (!looked_for(options.cublas)) {
    if (!insisted) return all;
    return fail(ErrorCode::kUnavailable, "an emulated device takes emulated libraries; name them by --cublas, --cudnn");
  }
  auto cublas = Cublas::open(device, options.cublas);
  if (!cublas) {
    if (insisted) return tl::unexpected(cublas.error());
    all.missing = cublas.error().message;
    return all;
  }
  all.cublas = std::move(*cublas);
  if (options.cudnn == kNoLibrary || !looked_for(options.cudnn)) return all;
  auto cudnn = Cudnn::open(device, options.cudnn);
  if (cudnn) {
    all.cudnn = std::move(*cudnn);
  } else if (!options.cudnn.empty()) {
    return tl::unexpected(cudnn.error());
  } else {
    all.missing = cudnn.error().message;
  }
  return all;
}

}  // namespace clustar::bench::trainer::graph::cuda
