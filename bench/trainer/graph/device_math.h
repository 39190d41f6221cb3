// Where and by what a network computes: memory, and a kernel for each operation. One implementation per device and
// library; all of them compute the same up to rounding.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "bench/trainer/graph/kernel.h"
#include "bench/trainer/graph/op.h"
#include "bench/trainer/graph/shape.h"
#include "bench/trainer/precision/precision.h"

namespace clustar::bench::trainer::graph {

// Floats on the device.
using Memory = std::unique_ptr<float[], std::function<void(float*)>>;

// What is asked of one DeviceMath, its kernels included, happens in the order of asking, perhaps later than the call
// returns (a GPU's stream); download() waits. Of one thread; equal operands give equal bits.
class DeviceMath {
 public:
  virtual ~DeviceMath() = default;

  virtual std::string name() const = 0;  // for reports: "oneDNN 2.6.3"
  virtual Memory allocate(std::size_t floats) = 0;
  virtual void upload(float* device, const float* host, std::size_t count) = 0;
  virtual void download(float* host, const float* device, std::size_t count) = 0;
  virtual void fill(float* values, std::size_t count, float value) = 0;
  virtual void add(float* sum, const float* more, std::size_t count) = 0;  // sum += more
  // Values that are float32 in memory, rounded to what a 16-bit type has; `to` may be `from`.
  virtual void round(float* to, const float* from, std::size_t count, Precision precision) = 0;
  // `inputs` and `output` are the shapes that the graph says. The kernel may use the DeviceMath as long as it lives.
  virtual std::unique_ptr<Kernel> kernel(const Op& op, std::span<const Shape> inputs, const Shape& output) = 0;
};

// The best that this build has on the CPU: oneDNN, otherwise plain code. Computes on the calling thread only, given a
// ComputeThread.
std::unique_ptr<DeviceMath> make_cpu_math();
// Its name(), without making one.
std::string cpu_math_name();

}  // namespace clustar::bench::trainer::graph
