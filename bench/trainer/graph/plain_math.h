// Plain C++ on the CPU: what always works.
#pragma once

#include "bench/trainer/graph/device_math.h"
#include "bench/trainer/graph/gemm.h"

namespace clustar::bench::trainer::graph {

class PlainMath : public DeviceMath {
 public:
  PlainMath() : PlainMath(plain_gemm) {}

  std::string name() const override { return "plain code (build without oneDNN)"; }
  Memory allocate(std::size_t floats) override;
  void upload(float* device, const float* host, std::size_t count) override;
  void download(float* host, const float* device, std::size_t count) override;
  void fill(float* values, std::size_t count, float value) override;
  void add(float* sum, const float* more, std::size_t count) override;
  void round(float* to, const float* from, std::size_t count, Precision precision) override;
  std::unique_ptr<Kernel> kernel(const Op& op, std::span<const Shape> inputs, const Shape& output) override;

 protected:
  // The same with another product of matrices.
  explicit PlainMath(Gemm gemm) : gemm_(gemm) {}

 private:
  Gemm gemm_;
};

}  // namespace clustar::bench::trainer::graph
