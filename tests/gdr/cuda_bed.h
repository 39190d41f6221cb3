// The CUDA module over the fake driver: loaded once in a process, as a plugin would.
#pragma once

#include <string>

#include "gdr/cuda/module_api.h"
#include "tests/gdr/fake_libcuda/fake_cuda.h"
#include "transport/base/result.h"

namespace clustar::tests {

struct CudaBed {
  const FakeCuda* driver;
  gdr::cuda::Api api;
};

// The driver of this library (a libcuda.so.1), then the module beside the plugin. The second call answers as the first.
Result<CudaBed> cuda_bed();
// ... with this fixture of tests/gdr/drivers, without .txt.
Result<CudaBed> cuda_bed(const std::string& fixture);

}  // namespace clustar::tests
