#include "bench/trainer/model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <stdexcept>
#include <utility>

#include "bench/trainer/image_models.h"
#include "bench/trainer/text_models.h"

namespace clustar::bench::trainer {
namespace {

constexpr std::size_t kDigitSide = 28;
constexpr std::size_t kDigitClasses = 10;

struct CnnWidths {
  std::size_t filters;  // of the first convolution; the second has twice as many
  std::size_t hidden;
};
constexpr CnnWidths kCnn{16, 128};
// Nothing of a message below 64 KiB may be lost (docs/loss.md). The dense layers are 1.4 MB in one bucket, so that a
// ring of up to 10 ranks makes messages above that; few filters keep the compute below the communication.
constexpr CnnWidths kCnnWide{8, 1280};

// Hidden layers with ReLU, then the classes. Without hidden layers: logistic regression.
Model digits_mlp(std::size_t hidden_layers, std::size_t width) {
  graph::Graph net({kDigitSide, kDigitSide, 1});
  std::string shape = "784";
  for (std::size_t i = 0; i < hidden_layers; ++i) shape += fmt::format("-{}", width);
  shape += hidden_layers > 0 ? "-10, ReLU" : "-10, logistic regression";
  for (std::size_t i = 1; i <= hidden_layers; ++i) {
    net.then(fmt::format("{}", i), graph::Linear{.outputs = width});
    net.then("relu", graph::Relu{});
  }
  net.then(fmt::format("{}", hidden_layers + 1), graph::Linear{.outputs = kDigitClasses});
  return {{}, std::move(shape), DataKind::kDigits, std::move(net), kDigitClasses};
}

// LeNet-5's shape (LeCun et al., Proc. IEEE 86(11), 1998) with ReLU and max pooling.
Model digits_cnn(const CnnWidths& widths, std::size_t divisor) {
  graph::Graph net({kDigitSide, kDigitSide, 1});
  const std::size_t filters = widths.filters / divisor;
  const std::size_t hidden = widths.hidden / divisor;
  net.then("1", graph::Convolution{.filters = filters, .kernel = 5});
  net.then("relu", graph::Relu{});
  net.then("pool", graph::MaxPool{});
  net.then("2", graph::Convolution{.filters = 2 * filters, .kernel = 5});
  net.then("relu", graph::Relu{});
  net.then("pool", graph::MaxPool{});
  std::string shape = fmt::format("28x28, conv 5x5x{}, pool 2, conv 5x5x{}, pool 2, {}-{}-10, ReLU", filters,
                                  2 * filters, net.output().elements(), hidden);
  net.then("3", graph::Linear{.outputs = hidden});
  net.then("relu", graph::Relu{});
  net.then("4", graph::Linear{.outputs = kDigitClasses});
  return {{}, std::move(shape), DataKind::kDigits, std::move(net), kDigitClasses};
}

struct NamedModel {
  std::string name;
  std::function<Model(const ModelOptions&)> make;
  bool of_images = false;  // takes image_size and classes
};

const std::vector<NamedModel>& known_models() {
  using Options = const ModelOptions&;
  static const std::vector<NamedModel> all{
      {"lr", [](Options) { return digits_mlp(0, 0); }},
      {"mlp-small", [](Options o) { return digits_mlp(1, 512 / o.width_divisor); }},
      {"mlp", [](Options o) { return digits_mlp(2, 512 / o.width_divisor); }},
      {"cnn", [](Options o) { return digits_cnn(kCnn, o.width_divisor); }},
      {"cnn-wide", [](Options o) { return digits_cnn(kCnnWide, o.width_divisor); }},
      {"alexnet", make_alexnet, true},
      {"vgg16", make_vgg16, true},
      {"resnet50", make_resnet50, true},
      {"gpt", make_gpt}};
  return all;
}

std::string options_trouble(const NamedModel& entry, const ModelOptions& options) {
  if (!entry.of_images && (options.image_size != 0 || options.classes != 0)) {
    return fmt::format(
        "model {} has images and classes of its own; allowed with those of images (alexnet, vgg16, "
        "resnet50) only",
        entry.name);
  }
  if (options.image_size > kMaxImageSize) return fmt::format("images have at most {0} x {0} pixels", kMaxImageSize);
  if (options.classes == 1 || options.classes > kMaxClasses) {
    return fmt::format("{} classes; allowed: 2 to {}", options.classes, kMaxClasses);
  }
  if (!std::has_single_bit(options.width_divisor) || options.width_divisor > kMaxWidthDivisor) {
    return fmt::format("widths cannot be divided by {}; allowed: 1, 2, 4, 8, 16", options.width_divisor);
  }
  if (entry.name == "lr" && options.width_divisor != 1) return "lr has no hidden units, whose width could be divided";
  if (entry.name == "cnn-wide" && options.width_divisor > kCnnWide.filters) {
    return fmt::format("cnn-wide has {} filters; its widths can be divided by that at most", kCnnWide.filters);
  }
  return {};
}

}  // namespace

std::vector<graph::TensorSpec> Model::tensors() const {
  std::vector<graph::TensorSpec> all;
  for (const graph::Node& node : graph.nodes()) {
    for (const graph::TensorSpec& tensor : graph.tensors_of(node)) {
      all.push_back({fmt::format("{}.{}", node.name, tensor.name), tensor.elements, tensor.columns});
    }
  }
  return all;
}

std::vector<std::size_t> Model::tensor_elements() const {
  std::vector<std::size_t> elements;
  for (const graph::TensorSpec& tensor : tensors()) elements.push_back(tensor.elements);
  return elements;
}

const std::vector<std::string>& model_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const NamedModel& entry : known_models()) all.push_back(entry.name);
    return all;
  }();
  return names;
}

Result<Model> make_model(const std::string& name, const ModelOptions& options) {
  const auto entry = std::find_if(known_models().begin(), known_models().end(),
                                  [&](const NamedModel& one) { return one.name == name; });
  if (entry == known_models().end()) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("there is no model '{}' in this version; available: {}", name,
                                                         fmt::join(model_names(), ", ")));
  }
  if (std::string wrong = options_trouble(*entry, options); !wrong.empty()) {
    return fail(ErrorCode::kInvalidArgument, std::move(wrong));
  }
  try {
    Model model = entry->make(options);
    model.name = name;
    return model;
  } catch (const std::invalid_argument& does_not_fit) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("model {} with images of {} x {}: {}", name,
                                                         options.image_size, options.image_size, does_not_fit.what()));
  }
}

}  // namespace clustar::bench::trainer
