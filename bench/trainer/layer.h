// One layer of a network: what it computes, forward and backward. Layers hold no parameters and no activations;
// both are given by the network, which decides where they lie.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bench/trainer/random.h"

namespace clustar::bench::trainer {

struct TensorSpec {
  std::string name;  // within the layer: "weight", "bias"
  std::size_t elements = 0;
  std::size_t columns = 1;  // of the matrix that it is, row-major: weights have a row per output
};

// Operands of one call. All matrices are batch x width, row-major. Pointers a call does not name may be null.
struct LayerCall {
  std::size_t batch = 0;
  std::span<const float* const> parameters;  // in the order of Layer::tensors()
  std::span<float* const> gradients;         // overwritten
  const float* x = nullptr;                  // the layer's input
  float* y = nullptr;                        // its output
  const float* dy = nullptr;                 // gradient of the loss by y
  float* dx = nullptr;                       // gradient of the loss by x
  float* scratch = nullptr;                  // Layer::scratch() floats, undefined before and after a call
};

class Layer {
 public:
  virtual ~Layer() = default;

  virtual std::string name() const = 0;
  virtual std::size_t inputs() const = 0;
  virtual std::size_t outputs() const = 0;
  virtual std::vector<TensorSpec> tensors() const { return {}; }
  // Floats that every call needs beside its operands.
  virtual std::size_t scratch() const { return 0; }
  virtual void initialise(std::span<float* const> /*parameters*/, Rng& /*rng*/) const {}

  // parameters, x -> y
  virtual void forward(const LayerCall& call) const = 0;
  // x, dy -> gradients. Called before backward_input, so that the gradients can leave while the rest is computed.
  virtual void backward_parameters(const LayerCall& /*call*/) const {}
  // parameters, x, y, dy -> dx
  virtual void backward_input(const LayerCall& call) const = 0;
};

// y = x W^T + b; W is outputs x inputs. Both start uniform in +-1/sqrt(inputs).
std::unique_ptr<Layer> make_linear(std::size_t inputs, std::size_t outputs);
// y = max(x, 0)
std::unique_ptr<Layer> make_relu(std::size_t width);

}  // namespace clustar::bench::trainer
