// The models by name, and the network that runs one: a chain of layers over flat parameter and gradient arrays.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bench/trainer/buckets.h"
#include "bench/trainer/layer.h"
#include "transport/base/result.h"

namespace clustar::bench::trainer {

struct Model {
  std::string name;
  std::string shape;  // for people: "784-512-512-10, ReLU"
  std::size_t image_rows = 0;
  std::size_t image_columns = 0;
  std::size_t classes = 0;
  std::vector<std::unique_ptr<Layer>> layers;

  // All tensors in parameter order (first layer first, weight before bias), named "<layer>.<tensor>".
  std::vector<TensorSpec> tensors() const;
  std::vector<std::size_t> tensor_elements() const;
};

// The names that make_model takes.
const std::vector<std::string>& model_names();
// kInvalidArgument for another name; the message lists those of this version.
Result<Model> make_model(const std::string& name);

// Not thread-safe: one network computes one batch at a time, in buffers made for max_batch examples.
class Network {
 public:
  // `model` must outlive the network; `plan` is that of its tensors.
  Network(const Model& model, const BucketPlan& plan, std::size_t max_batch);

  // The same seed gives the same bits on every rank.
  void initialise(std::span<float> parameters, std::uint64_t seed) const;

  // Returns the outputs, batch x classes, valid until the next call. `x` must live until backward returned. `needs`, if
  // there is one, is called before a layer reads its parameters: `count` tensors from `first` on. It may change them.
  using Needs = std::function<void(std::size_t first, std::size_t count)>;
  std::span<const float> forward(std::span<const float> parameters, const float* x, std::size_t batch,
                                 const Needs& needs = {});

  // For the batch of the last forward: fills `gradients` and calls `ready(tensor)` for each tensor, in reverse
  // parameter order, as soon as its gradient is final.
  void backward(std::span<const float> parameters, std::span<const float> output_gradient, std::span<float> gradients,
                const std::function<void(std::size_t tensor)>& ready);

 private:
  struct Stage {
    const Layer* layer;
    std::size_t first_tensor;
    std::vector<std::size_t> offsets;  // of its tensors in the flat arrays
    std::vector<float> output;
    std::vector<float> input_gradient;  // empty for the first stage, whose input needs none
  };
  template <class Float>
  static std::vector<Float*> tensor_pointers(const Stage& stage, Float* base);

  std::vector<Stage> stages_;
  std::vector<float> scratch_;  // of the layer that runs
  const float* input_ = nullptr;
  std::size_t batch_ = 0;
};

}  // namespace clustar::bench::trainer
