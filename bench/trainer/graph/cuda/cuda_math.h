// A GPU by the project's own kernels, products of matrices and convolutions by cuBLAS and cuDNN where a run asks for
// them and they are there. All of CUDA is found when the program runs: the driver alone is needed. The same kernels run
// on the emulated device (tests/gdr/emulated_device), whose name says so.
#pragma once

#include <memory>
#include <string>

#include "bench/trainer/graph/cuda/dense_arguments.h"
#include "bench/trainer/graph/cuda/libraries/libraries.h"
#include "bench/trainer/graph/cuda/libraries/options.h"
#include "bench/trainer/graph/cuda/products.h"
#include "bench/trainer/graph/device_math.h"
#include "gdr/launch/device.h"
#include "transport/base/result.h"

namespace clustar::bench::trainer::graph {

// Each call throws std::runtime_error with what the driver answered, as nothing that follows would mean anything.
class CudaMath final : public DeviceMath {
 public:
  // `driver`: of the CUDA driver, as gdr::launch::kCudaDriver; `number`: as gdr::launch::Device has it. kUnavailable:
  // there is no driver or GPU, this build has no code for it, or a library that `options` insist on is not there.
  static Result<std::unique_ptr<CudaMath>> open(const std::string& driver, int number = 0,
                                                const cuda::MathOptions& options = {});

  bool emulated() const { return device_->emulated(); }
  std::string name() const override;
  std::string libraries() const { return libraries_.text(); }  // "cublas 13.1, cudnn 9.19", "own kernels"
  Memory allocate(std::size_t floats) override;
  void upload(float* device, const float* host, std::size_t count) override;
  void download(float* host, const float* device, std::size_t count) override;
  void fill(float* values, std::size_t count, float value) override;
  void add(float* sum, const float* more, std::size_t count) override;
  void round(float* to, const float* from, std::size_t count, Precision precision) override;
  // Of memory of the device, element by element.
  void sgd(const cuda::SgdArguments& step);
  void* mark();  // as gdr::launch::Device has it
  std::unique_ptr<Kernel> kernel(const Op& op, std::span<const Shape> inputs, const Shape& output) override;

 private:
  CudaMath(std::unique_ptr<gdr::launch::Device> device, cuda::Libraries libraries);
  cuda::Products& products();

  std::unique_ptr<gdr::launch::Device> device_;  // outlives what is below
  cuda::KernelProducts kernel_products_;
  cuda::Libraries libraries_;
};

}  // namespace clustar::bench::trainer::graph
