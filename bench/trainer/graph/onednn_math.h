// oneDNN on the CPU, and plain code for what it has nothing for.
#pragma once

#include <memory>

#include "bench/trainer/graph/plain_math.h"

namespace clustar::bench::trainer::graph {

struct OneDnnRuntime;  // oneDNN's engine and stream

class OneDnnMath final : public PlainMath {
 public:
  OneDnnMath();

  std::string name() const override;
  // Kernels throw std::runtime_error when oneDNN refuses, which it does only for shapes that do not fit its integers.
  std::unique_ptr<Kernel> kernel(const Op& op, std::span<const Shape> inputs, const Shape& output) override;

 private:
  std::shared_ptr<OneDnnRuntime> runtime_;
};

}  // namespace clustar::bench::trainer::graph
