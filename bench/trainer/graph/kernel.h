// How one node of a graph is computed on one device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace clustar::bench::trainer::graph {

// All pointers are to the DeviceMath's memory; values are batch x elements.
struct ForwardCall {
  std::size_t batch = 0;  // at least 1
  bool training = true;
  std::uint64_t draw = 0;  // seeds this call's random numbers; unrelated from call to call and node to node
  std::span<const float* const> inputs;
  float* output = nullptr;
  std::span<const float* const> parameters;  // in the order of tensors()
  std::span<float* const> states;            // in the order of states(); changed in training only
  float* saved = nullptr;                    // Kernel::saved() floats, kept for the backward pass; null unless training
  float* scratch = nullptr;                  // Kernel::scratch() floats, undefined before and after
};

// After the forward call of the same batch, with training.
struct BackwardCall {
  std::size_t batch = 0;
  std::span<const float* const> inputs;
  const float* output = nullptr;
  const float* output_gradient = nullptr;
  std::span<float* const> input_gradients;  // overwritten; null where nobody wants one
  std::span<const float* const> parameters;
  std::span<float* const> gradients;  // of the parameters; overwritten
  float* saved = nullptr;
  float* scratch = nullptr;
};

class Kernel {
 public:
  virtual ~Kernel() = default;

  virtual std::size_t saved(std::size_t /*batch*/) const { return 0; }
  virtual std::size_t scratch(std::size_t /*batch*/) const { return 0; }
  virtual void forward(const ForwardCall& call) = 0;
  // Called first, so that the gradients can leave while the rest is computed: from then on they are not ours to read.
  virtual void backward_parameters(const BackwardCall& /*call*/) {}
  virtual void backward_inputs(const BackwardCall& call) = 0;
};

}  // namespace clustar::bench::trainer::graph
