// Products of matrices on a GPU: by our kernels, or by cuBLAS.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gdr/launch/device.h"

namespace clustar::bench::trainer::graph::cuda {

// Which operand is stored transposed: n as it is, t transposed.
enum class Form : std::uint8_t { kNt, kTn, kNn };

class Products {
 public:
  virtual ~Products() = default;
  // C[m x n] = op(A)[m x k] op(B)[k x n], row-major, in the device's memory and in the order of its stream. Equal
  // operands give equal bits. Throws std::runtime_error with what failed.
  virtual void multiply(Form form, const float* a, const float* b, float* c, std::size_t m, std::size_t n,
                        std::size_t k) = 0;
};

class KernelProducts final : public Products {
 public:
  explicit KernelProducts(gdr::launch::Device& device) : device_(device) {}
  void multiply(Form form, const float* a, const float* b, float* c, std::size_t m, std::size_t n,
                std::size_t k) override;

 private:
  gdr::launch::Device& device_;
};

}  // namespace clustar::bench::trainer::graph::cuda
