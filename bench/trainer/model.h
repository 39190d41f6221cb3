// The models by name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "bench/trainer/data/load.h"
#include "bench/trainer/graph/graph.h"
#include "transport/base/result.h"

namespace clustar::bench::trainer {

struct Model {
  std::string name;
  std::string shape;  // for people: "784-512-512-10, ReLU"
  DataKind data = DataKind::kDigits;
  graph::Graph graph;
  std::size_t classes = 0;      // of each prediction
  std::size_t predictions = 1;  // of each example: a text has one for each token

  // All tensors in parameter order (first layer first, weight before bias), named "<layer>.<tensor>".
  std::vector<graph::TensorSpec> tensors() const;
  std::vector<std::size_t> tensor_elements() const;
};

// Zero: as the model was published. `image_size` and `classes` are for models of images only.
struct ModelOptions {
  std::size_t image_size = 0;  // rows and columns
  std::size_t classes = 0;
  std::size_t width_divisor = 1;  // channels and hidden units are divided by it: small models of the same kind

  bool operator==(const ModelOptions&) const = default;
};

inline constexpr std::size_t kMaxImageSize = 1024;
inline constexpr std::size_t kMaxClasses = 1000;
inline constexpr std::size_t kMaxWidthDivisor = 16;  // a power of two

// The names that make_model takes.
const std::vector<std::string>& model_names();
// kInvalidArgument for another name, whose message lists those of this version, and for options that do not fit.
Result<Model> make_model(const std::string& name, const ModelOptions& options = {});

}  // namespace clustar::bench::trainer
