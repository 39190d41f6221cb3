// Runs a graph on a device over flat parameter and gradient arrays.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "bench/trainer/graph/device_math.h"
#include "bench/trainer/graph/graph.h"

namespace clustar::bench::trainer::graph {

// What a node does in a training step.
enum class Pass : std::uint8_t { kForward, kParameterGradients, kInputGradients };
inline constexpr std::size_t kPasses = 3;

// Not thread-safe: one network computes one batch at a time, in buffers made for max_batch examples.
class Network {
 public:
  // `tensor_offsets`: where each tensor, in parameter order, starts in the flat arrays. `graph` and `math` must outlive
  // the network. `draws` seeds dropout: ranks have different ones, so that each drops others. With a `precision` of 16
  // bits all values, all gradients and the weights that are multiplied by are rounded to it; a kernel adds and keeps
  // what it saves in float32, as parameters and state are. Throws std::invalid_argument for a graph in which nobody
  // uses what some node makes.
  Network(const Graph& graph, DeviceMath& math, std::span<const std::size_t> tensor_offsets, std::size_t max_batch,
          std::uint64_t draws = 0, Precision precision = Precision::kFloat32);

  // From now on the flat arrays have the tensors there; between two passes, also between a forward and its backward.
  void set_tensor_offsets(std::span<const std::size_t> tensor_offsets);

  // In host memory. The same seed gives the same bits on every rank.
  void initialise(std::span<float> parameters, std::uint64_t seed) const;

  // Returns the outputs, batch x output elements, in host memory, valid until the next call. `x` is in host memory;
  // `parameters`, as all below, in the math's. `needs`, if there is one, is called before a node reads its parameters:
  // `count` tensors from `first` on. It may change them.
  using Needs = std::function<void(std::size_t first, std::size_t count)>;
  std::span<const float> forward(const float* parameters, const float* x, std::size_t batch, const Needs& needs = {});
  // The same as evaluation does it: nothing dropped, running statistics instead of the batch's, and none changed.
  std::span<const float> evaluate(const float* parameters, const float* x, std::size_t batch);

  // For the batch of the last forward(): fills `gradients` and calls `ready(tensor)` for each tensor as soon as its
  // gradient is final, in the order of computing, which is that of the nodes from the last to the first.
  // `output_gradient` is in host memory.
  void backward(const float* parameters, std::span<const float> output_gradient, float* gradients,
                const std::function<void(std::size_t tensor)>& ready);

  // From now on `observer` hears how long each node's passes of a training step take. A math that computes while the
  // host goes on would tell nothing this way.
  using Observer = std::function<void(std::size_t node, Pass pass, double seconds)>;
  void observe(Observer observer) { observer_ = std::move(observer); }

  // What nodes keep beside the parameters (running statistics), as one array in node order.
  std::size_t state_size() const { return state_floats_; }
  std::vector<float> state() const;
  void set_state(std::span<const float> state);
  // Calls of forward() so far, which decide with `draws` what the next one drops.
  std::uint64_t passes() const { return passes_; }
  void set_passes(std::uint64_t passes) { passes_ = passes; }

 private:
  struct Stage {
    std::unique_ptr<Kernel> kernel;  // null: the input
    std::size_t first_tensor = 0;
    std::vector<std::size_t> offsets;  // of its tensors in the flat arrays
    std::vector<std::size_t> sizes;
    std::size_t elements = 0;  // of its output
    Memory output;
    Memory saved;
    std::vector<float*> states;   // in states_
    std::vector<float*> rounded;  // its parameters in rounded_; empty: it reads those it is given
    bool needs_gradient = false;  // a parameter is before it
    std::size_t gradient_buffer = 0;
  };
  template <class Float>
  static std::vector<Float*> tensor_pointers(const Stage& stage, Float* base);
  std::vector<const float*> input_pointers(std::size_t node) const;
  std::vector<const float*> parameters_of(const Stage& stage, const float* parameters) const;
  void round(float* values, std::size_t count);
  void round_parameters(const Stage& stage, const float* parameters);
  void plan_rounding();
  std::span<const float> run(const float* parameters, const float* x, std::size_t batch, bool training,
                             const Needs& needs);
  void plan_gradients(std::size_t max_batch);
  void run_backward(std::size_t node, const BackwardCall& call, std::vector<bool>& written,
                    const std::function<void(std::size_t tensor)>& ready);
  void timed(std::size_t node, Pass pass, const std::function<void()>& work) const;
  void zero_gradients(float* gradients, const std::function<void(std::size_t tensor)>& ready);

  const Graph& graph_;
  DeviceMath& math_;
  std::vector<Stage> stages_;
  std::size_t state_floats_ = 0;
  Memory states_;
  Memory scratch_;  // of the node that runs
  const Precision precision_;
  bool rounds_input_ = false;
  Memory rounded_;  // weights as the latest forward() or evaluate() rounded them; null with kFloat32
  // Gradients of values share buffers: one is free again once the node that made the value has used it.
  std::vector<Memory> gradient_buffers_;
  Memory partial_;  // a gradient that is to be added to what other users of the value wrote
  std::vector<float> outputs_;
  Observer observer_;
  std::uint64_t draws_;
  std::uint64_t passes_ = 0;
  std::size_t batch_ = 0;
};

}  // namespace clustar::bench::trainer::graph
