// A GPU by the project's own kernels, and nothing of CUDA's libraries: the driver alone, found when the program runs.
// The same kernels run on the emulated device (tests/gdr/emulated_device), whose name says so.
#pragma once

#include <memory>
#include <string>

#include "bench/trainer/graph/cuda/dense_arguments.h"
#include "bench/trainer/graph/device_math.h"
#include "gdr/launch/device.h"
#include "transport/base/result.h"

namespace clustar::bench::trainer::graph {

// Each call throws std::runtime_error with what the driver answered, as nothing that follows would mean anything.
class CudaMath final : public DeviceMath {
 public:
  // `driver`: of the CUDA driver, as gdr::launch::kCudaDriver; `number`: as gdr::launch::Device has it. kUnavailable:
  // there is no driver or GPU, or this build has no code for it.
  static Result<std::unique_ptr<CudaMath>> open(const std::string& driver, int number = 0);

  bool emulated() const { return device_->emulated(); }
  std::string name() const override;
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
  explicit CudaMath(std::unique_ptr<gdr::launch::Device> device) : device_(std::move(device)) {}

  std::unique_ptr<gdr::launch::Device> device_;
};

}  // namespace clustar::bench::trainer::graph
