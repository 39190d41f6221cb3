#include "bench/trainer/compute/cards.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string_view>

namespace clustar::bench::trainer {
namespace {

constexpr Card kCards[]{
    {"p100", "10.6 TFLOP/s float32, 732 GB/s", 10.6e12, 732e9},
    {"v100", "15.7 TFLOP/s float32, 900 GB/s", 15.7e12, 900e9},
    {"a100", "156 TFLOP/s TF32, 1,555 GB/s", 156e12, 1555e9},
    {"h100", "494 TFLOP/s TF32, 3,350 GB/s", 494e12, 3350e9},
    {"h200", "494 TFLOP/s TF32, 4,800 GB/s", 494e12, 4800e9},
};

}  // namespace

const Card* find_card(const std::string& name) {
  const auto found = std::find_if(std::begin(kCards), std::end(kCards),
                                  [&](const Card& card) { return std::string_view(card.name) == name; });
  return found == std::end(kCards) ? nullptr : found;
}

std::vector<std::string> card_names() {
  std::vector<std::string> names;
  for (const Card& card : kCards) names.emplace_back(card.name);
  return names;
}

LayerTimes estimate(const Model& model, const Card& card, std::size_t batch) {
  const graph::Graph& graph = model.graph;
  LayerTimes times{.model = model.name,
                   .batch = batch,
                   .estimated = true,
                   .device = fmt::format("{} ({})", card.name, card.published),
                   .layers = {}};
  std::vector<bool> learns(graph.nodes().size());  // a parameter is at or before the node
  for (std::size_t n = 1; n < graph.nodes().size(); ++n) {
    const graph::Node& node = graph.nodes()[n];
    double parameters = 0;
    for (const graph::TensorSpec& tensor : graph.tensors_of(node)) parameters += static_cast<double>(tensor.elements);
    double values = static_cast<double>(node.shape.elements());
    for (const graph::Shape& shape : graph.input_shapes(node)) values += static_cast<double>(shape.elements());
    const auto examples = static_cast<double>(batch);
    const double by_flops = 2 * static_cast<double>(graph.multiply_adds(node)) * examples / (card.flops * kReached);
    const double by_bytes = sizeof(float) * (values * examples + parameters) / card.bytes_per_second;
    const double once = std::max(by_flops, by_bytes);
    const bool before =
        std::any_of(node.inputs.begin(), node.inputs.end(), [&](graph::Value input) { return learns[input]; });
    learns[n] = before || parameters > 0;
    times.layers.push_back({node.name, once, parameters > 0 ? once : 0, before ? once : 0});
  }
  return times;
}

}  // namespace clustar::bench::trainer
