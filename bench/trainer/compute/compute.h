// What computes a rank's steps: the network itself, or a replay of times that were measured elsewhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "bench/trainer/compute/on_device.h"
#include "bench/trainer/loss.h"

namespace clustar::bench::trainer {

// A step is forward(), then backward(). Uses the calling thread only. Parameters and gradients lie as the bucket plan
// says.
class Compute {
 public:
  using Needs = std::function<void(std::size_t first, std::size_t count)>;
  using Ready = std::function<void(std::size_t tensor)>;

  virtual ~Compute() = default;
  // False: there are no examples, no losses and no accuracy, only the time that a step takes and its gradients' bytes.
  virtual bool learns() const = 0;
  // From now on tensors lie there; between two passes, also between a forward() and its backward().
  virtual void set_tensor_offsets(std::span<const std::size_t> offsets) = 0;
  // The same on every rank.
  virtual void initialise(std::span<float> parameters) const = 0;
  // `examples` of them: `x` is empty where nothing learns. `needs` is called before tensors are read, which it may
  // still change: `count` of them from `first` on.
  virtual void forward(const float* parameters, std::span<const float> x, std::size_t examples, const Needs& needs) = 0;
  // Of the examples of the latest forward(): fills `gradients`, those of the loss times `scale`, and calls `ready` for
  // each tensor as soon as its gradient is final.
  virtual LossSum backward(const float* parameters, std::span<const std::uint16_t> labels, float scale,
                           float* gradients, const Ready& ready) = 0;
  // Within `ready`: a layer waited for other ranks so long, so that all that follows is later.
  virtual void stand_still(double seconds) = 0;
  virtual LossSum evaluate(const float* parameters, std::span<const float> x, std::span<const std::uint16_t> labels,
                           std::size_t examples) = 0;
  virtual std::size_t largest_evaluation() const = 0;  // examples of one evaluate()
  // Running statistics; empty where there are none.
  virtual std::vector<float> state() const = 0;
  virtual void set_state(std::span<const float> state) = 0;
  // Passes forward so far, which dropout's draws hang on.
  virtual std::uint64_t passes() const = 0;
  virtual void set_passes(std::uint64_t passes) = 0;
  // Null: parameters and gradients are the host's alone.
  virtual OnDevice* on_device() { return nullptr; }
};

}  // namespace clustar::bench::trainer
