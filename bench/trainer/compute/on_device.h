// Where a rank's parameters, gradients and momentum are when they stay on the GPU that computes with them: gradients
// are summed from there, and the update is a kernel's. Nothing of a step goes through host memory.
#pragma once

#include <cstddef>
#include <span>

#include "bench/trainer/collective.h"
#include "bench/trainer/sgd.h"

namespace clustar::bench::trainer {

// Arrays lie as the bucket plan says, and have its capacity. What fails throws std::runtime_error.
class OnDevice {
 public:
  virtual ~OnDevice() = default;
  // From now on the parameters are the device's, and passes over the network take those. Momentum is zero.
  virtual void take(std::span<const float> parameters) = 0;
  virtual void set(std::span<const float> parameters, std::span<const float> momentum) = 0;
  // Wait for all that the device was asked for.
  virtual void copy_parameters(std::span<float> host) = 0;
  virtual void copy_momentum(std::span<float> host) = 0;
  virtual Buffer gradients() = 0;
  // When all gradients are final that were ready so far. Of no use after the next call.
  virtual Event ready() = 0;
  // Of `count` parameters from `first` on.
  virtual void update(const SgdOptions& options, std::size_t first, std::size_t count) = 0;
};

}  // namespace clustar::bench::trainer
