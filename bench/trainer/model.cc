#include "bench/trainer/model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "bench/trainer/image_layers.h"

namespace clustar::bench::trainer {
namespace {

constexpr std::size_t kImageSide = 28;
constexpr std::size_t kClasses = 10;
constexpr std::uint64_t kInitialisationStream = 1;

struct CnnWidths {
  std::size_t filters;  // of the first convolution; the second has twice as many
  std::size_t hidden;
};
constexpr CnnWidths kCnn{16, 128};
// Nothing of a message below 64 KiB may be lost (docs/loss.md). The dense layers are 1.4 MB in one bucket, so that a
// ring of up to 10 ranks makes messages above that; few filters keep the compute below the communication.
constexpr CnnWidths kCnnWide{8, 1280};

Model digits_model(std::string name, std::string shape, const std::vector<std::size_t>& widths) {
  Model model{std::move(name), std::move(shape), kImageSide, kImageSide, kClasses, {}};
  for (std::size_t i = 0; i + 1 < widths.size(); ++i) {
    if (i > 0) model.layers.push_back(make_relu(widths[i]));
    model.layers.push_back(make_linear(widths[i], widths[i + 1]));
  }
  return model;
}

// LeNet-5's shape (LeCun et al., Proc. IEEE 86(11), 1998) with ReLU and max pooling.
Model digits_cnn(std::string name, const CnnWidths& widths) {
  constexpr std::size_t kKernel = 5;
  Model model{std::move(name), {}, kImageSide, kImageSide, kClasses, {}};
  ImageShape image{kImageSide, kImageSide, 1};
  for (const std::size_t filters : {widths.filters, 2 * widths.filters}) {
    model.layers.push_back(make_conv2d(image, filters, kKernel));
    image = conv2d_output(image, filters, kKernel);
    model.layers.push_back(make_relu(image.elements()));
    model.layers.push_back(make_max_pool(image, 2));
    image = max_pool_output(image, 2);
  }
  model.shape = fmt::format("28x28, conv 5x5x{}, pool 2, conv 5x5x{}, pool 2, {}-{}-10, ReLU", widths.filters,
                            2 * widths.filters, image.elements(), widths.hidden);
  model.layers.push_back(make_linear(image.elements(), widths.hidden));
  model.layers.push_back(make_relu(widths.hidden));
  model.layers.push_back(make_linear(widths.hidden, kClasses));
  return model;
}

}  // namespace

std::vector<TensorSpec> Model::tensors() const {
  std::vector<TensorSpec> all;
  int number = 0;
  for (const auto& layer : layers) {
    std::vector<TensorSpec> own = layer->tensors();
    if (own.empty()) continue;
    ++number;
    for (TensorSpec& tensor : own)
      all.push_back({fmt::format("{}.{}", number, tensor.name), tensor.elements, tensor.columns});
  }
  return all;
}

std::vector<std::size_t> Model::tensor_elements() const {
  std::vector<std::size_t> elements;
  for (const TensorSpec& tensor : tensors()) elements.push_back(tensor.elements);
  return elements;
}

const std::vector<std::string>& model_names() {
  static const std::vector<std::string> names{"lr", "mlp-small", "mlp", "cnn", "cnn-wide"};
  return names;
}

Result<Model> make_model(const std::string& name) {
  if (name == "lr") return digits_model(name, "784-10, logistic regression", {784, 10});
  if (name == "mlp-small") return digits_model(name, "784-512-10, ReLU", {784, 512, 10});
  if (name == "mlp") return digits_model(name, "784-512-512-10, ReLU", {784, 512, 512, 10});
  if (name == "cnn") return digits_cnn(name, kCnn);
  if (name == "cnn-wide") return digits_cnn(name, kCnnWide);
  return fail(ErrorCode::kInvalidArgument, fmt::format("there is no model '{}' in this version; available: {}", name,
                                                       fmt::join(model_names(), ", ")));
}

Network::Network(const Model& model, const BucketPlan& plan, std::size_t max_batch) {
  std::size_t tensor = 0;
  std::size_t scratch = 0;
  for (const auto& layer : model.layers) {
    scratch = std::max(scratch, layer->scratch());
    Stage stage{layer.get(), tensor, {}, std::vector<float>(max_batch * layer->outputs()), {}};
    const std::size_t count = layer->tensors().size();
    for (std::size_t i = 0; i < count; ++i) stage.offsets.push_back(plan.tensor_offset[tensor + i]);
    tensor += count;
    if (!stages_.empty()) stage.input_gradient.resize(max_batch * layer->inputs());
    stages_.push_back(std::move(stage));
  }
  scratch_.resize(scratch);
}

template <class Float>
std::vector<Float*> Network::tensor_pointers(const Stage& stage, Float* base) {
  std::vector<Float*> pointers;
  for (const std::size_t offset : stage.offsets) pointers.push_back(base + offset);
  return pointers;
}

void Network::initialise(std::span<float> parameters, std::uint64_t seed) const {
  Rng rng(seed, kInitialisationStream);
  for (const Stage& stage : stages_) stage.layer->initialise(tensor_pointers(stage, parameters.data()), rng);
}

std::span<const float> Network::forward(std::span<const float> parameters, const float* x, std::size_t batch,
                                        const Needs& needs) {
  input_ = x;
  batch_ = batch;
  for (Stage& stage : stages_) {
    if (needs && !stage.offsets.empty()) needs(stage.first_tensor, stage.offsets.size());
    const std::vector<const float*> own = tensor_pointers(stage, parameters.data());
    LayerCall call;
    call.batch = batch;
    call.parameters = own;
    call.x = x;
    call.y = stage.output.data();
    call.scratch = scratch_.data();
    stage.layer->forward(call);
    x = stage.output.data();
  }
  return {stages_.back().output.data(), batch * stages_.back().layer->outputs()};
}

void Network::backward(std::span<const float> parameters, std::span<const float> output_gradient,
                       std::span<float> gradients, const std::function<void(std::size_t tensor)>& ready) {
  const float* dy = output_gradient.data();
  for (std::size_t i = stages_.size(); i-- > 0;) {
    Stage& stage = stages_[i];
    const std::vector<const float*> own = tensor_pointers(stage, parameters.data());
    const std::vector<float*> own_gradients = tensor_pointers(stage, gradients.data());
    LayerCall call;
    call.batch = batch_;
    call.parameters = own;
    call.gradients = own_gradients;
    call.x = i > 0 ? stages_[i - 1].output.data() : input_;
    call.y = stage.output.data();
    call.dy = dy;
    call.dx = stage.input_gradient.data();
    call.scratch = scratch_.data();
    stage.layer->backward_parameters(call);
    for (std::size_t t = stage.offsets.size(); t-- > 0;) ready(stage.first_tensor + t);
    if (i > 0) stage.layer->backward_input(call);
    dy = stage.input_gradient.data();
  }
}

}  // namespace clustar::bench::trainer
