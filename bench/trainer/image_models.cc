#include "bench/trainer/image_models.h"

#include <fmt/format.h>

#include <cmath>
#include <string>
#include <utility>

namespace clustar::bench::trainer {
namespace {

using graph::Graph;
using graph::Value;

constexpr std::size_t kPublishedSide = 224;
constexpr std::size_t kPublishedClasses = 1000;
constexpr std::size_t kHidden = 4096;     // of AlexNet's and VGG's dense layers
constexpr double kDenseDeviation = 0.01;  // VGG's, at its full width

std::size_t classes(const ModelOptions& options) { return options.classes != 0 ? options.classes : kPublishedClasses; }

Graph image_graph(const ModelOptions& options) {
  const std::size_t side = options.image_size != 0 ? options.image_size : kPublishedSide;
  return Graph({side, side, 3});
}

Model finished(Graph net, const char* shape, const ModelOptions& options) {
  const graph::Shape in = net.input();
  return {{},
          fmt::format("{}x{}x3, {}, {} classes", in.rows, in.columns, shape, classes(options)),
          DataKind::kImages,
          std::move(net),
          classes(options)};
}

// For layers before ReLU, by what a filter gives to (He et al., ICCV 2015; fan out, as torchvision).
graph::Convolution he_convolution(std::size_t filters, std::size_t kernel) {
  return {.filters = filters,
          .kernel = kernel,
          .deviation = std::sqrt(2.0 / static_cast<double>(kernel * kernel * filters))};
}

// conv, batch norm. `name` has a place for "conv" or "bn".
Value normalised(Graph& net, Value from, const std::string& conv, const std::string& norm, std::size_t filters,
                 std::size_t kernel, std::size_t stride) {
  graph::Convolution op = he_convolution(filters, kernel);
  op.stride = stride;
  op.padding = kernel / 2;
  op.bias = false;
  const Value value = net.add(conv, op, {from});
  return net.add(norm, graph::BatchNorm{}, {value});
}

// 1x1, 3x3 with the stride, 1x1 to four times the width, and a way around (He et al., CVPR 2016, with the stride where
// torchvision has it).
Value bottleneck(Graph& net, Value in, const std::string& name, std::size_t width, std::size_t stride, bool project) {
  Value value = normalised(net, in, name + ".conv1", name + ".bn1", width, 1, 1);
  value = net.add(name + ".relu1", graph::Relu{}, {value});
  value = normalised(net, value, name + ".conv2", name + ".bn2", width, 3, stride);
  value = net.add(name + ".relu2", graph::Relu{}, {value});
  value = normalised(net, value, name + ".conv3", name + ".bn3", 4 * width, 1, 1);
  const Value around =
      project ? normalised(net, in, name + ".downsample.0", name + ".downsample.1", 4 * width, 1, stride) : in;
  value = net.add(name + ".add", graph::Add{}, {value, around});
  return net.add(name + ".relu", graph::Relu{}, {value});
}

}  // namespace

Model make_alexnet(const ModelOptions& options) {
  const std::size_t d = options.width_divisor;
  Graph net = image_graph(options);
  int number = 0;
  const auto next = [&](const graph::Op& op) { net.then(fmt::format("features.{}", number++), op); };
  const auto conv = [&](std::size_t filters, std::size_t kernel, std::size_t stride, std::size_t padding) {
    next(graph::Convolution{.filters = filters / d, .kernel = kernel, .stride = stride, .padding = padding});
    next(graph::Relu{});
  };
  const auto pool = [&] { next(graph::MaxPool{.window = 3, .stride = 2}); };
  conv(64, 11, 4, 2);
  pool();
  conv(192, 5, 1, 2);
  pool();
  conv(384, 3, 1, 1);
  conv(256, 3, 1, 1);
  conv(256, 3, 1, 1);
  pool();
  net.then("avgpool", graph::AdaptiveAveragePool{6, 6});
  net.then("classifier.0", graph::Dropout{});
  net.then("classifier.1", graph::Linear{.outputs = kHidden / d});
  net.then("classifier.2", graph::Relu{});
  net.then("classifier.3", graph::Dropout{});
  net.then("classifier.4", graph::Linear{.outputs = kHidden / d});
  net.then("classifier.5", graph::Relu{});
  net.then("classifier.6", graph::Linear{.outputs = classes(options)});
  return finished(std::move(net), "five convolutions, three dense layers", options);
}

Model make_vgg16(const ModelOptions& options) {
  const std::size_t d = options.width_divisor;
  Graph net = image_graph(options);
  int number = 0;
  const auto next = [&](const graph::Op& op) { net.then(fmt::format("features.{}", number++), op); };
  const std::pair<std::size_t, int> stages[] = {{64, 2}, {128, 2}, {256, 3}, {512, 3}, {512, 3}};
  for (const auto& [filters, convolutions] : stages) {
    for (int i = 0; i < convolutions; ++i) {
      graph::Convolution op = he_convolution(filters / d, 3);
      op.padding = 1;
      next(op);
      next(graph::Relu{});
    }
    next(graph::MaxPool{});
  }
  const double dense = kDenseDeviation * std::sqrt(static_cast<double>(d));
  net.then("avgpool", graph::AdaptiveAveragePool{7, 7});
  net.then("classifier.0", graph::Linear{.outputs = kHidden / d, .deviation = dense});
  net.then("classifier.1", graph::Relu{});
  net.then("classifier.2", graph::Dropout{});
  net.then("classifier.3", graph::Linear{.outputs = kHidden / d, .deviation = dense});
  net.then("classifier.4", graph::Relu{});
  net.then("classifier.5", graph::Dropout{});
  net.then("classifier.6", graph::Linear{.outputs = classes(options), .deviation = dense});
  return finished(std::move(net), "13 convolutions, three dense layers", options);
}

Model make_resnet50(const ModelOptions& options) {
  const std::size_t d = options.width_divisor;
  Graph net = image_graph(options);
  Value value = normalised(net, 0, "conv1", "bn1", 64 / d, 7, 2);
  value = net.add("relu", graph::Relu{}, {value});
  value = net.add("maxpool", graph::MaxPool{.window = 3, .stride = 2, .padding = 1}, {value});
  const std::pair<std::size_t, int> stages[] = {{64, 3}, {128, 4}, {256, 6}, {512, 3}};
  int stage = 0;
  for (const auto& [width, blocks] : stages) {
    ++stage;
    for (int block = 0; block < blocks; ++block) {
      const std::size_t stride = stage > 1 && block == 0 ? 2 : 1;
      value = bottleneck(net, value, fmt::format("layer{}.{}", stage, block), width / d, stride, block == 0);
    }
  }
  net.then("avgpool", graph::AdaptiveAveragePool{1, 1});
  net.then("fc", graph::Linear{.outputs = classes(options)});
  return finished(std::move(net), "16 bottleneck blocks", options);
}

}  // namespace clustar::bench::trainer
