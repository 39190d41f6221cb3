// Products of matrices by cuBLAS. Never run on a GPU so far: on the emulated device, by the emulated library alone.
#pragma once

#include <memory>
#include <string>

#include "bench/trainer/graph/cuda/libraries/cublas_calls.h"
#include "bench/trainer/graph/cuda/products.h"
#include "gdr/launch/device.h"
#include "transport/base/result.h"

namespace clustar::bench::trainer::graph::cuda {

// In float32, without TF32 and atomics, on the device's one stream: the same products have the same bits on GPUs of one
// kind (cuBLAS's documentation, "Results reproducibility"). The device outlives it.
class Cublas final : public Products {
 public:
  // `library` empty: libcublas.so.13, .12 or .11. kUnavailable: as open_library(), or cuBLAS does not start.
  static Result<std::unique_ptr<Cublas>> open(gdr::launch::Device& device, const std::string& library);
  ~Cublas() override;
  Cublas(const Cublas&) = delete;
  Cublas& operator=(const Cublas&) = delete;

  const std::string& version() const { return version_; }  // "13.1"
  void multiply(Form form, const float* a, const float* b, float* c, std::size_t m, std::size_t n,
                std::size_t k) override;

 private:
  explicit Cublas(gdr::launch::Device& device) : device_(device) {}
  Result<void> start(const std::string& library);
  Result<void> check(int status, const std::string& call) const;

  gdr::launch::Device& device_;
  CublasCalls calls_;
  void* handle_ = nullptr;
  std::string version_;
};

}  // namespace clustar::bench::trainer::graph::cuda
