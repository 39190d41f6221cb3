#include "bench/trainer/graph/graph.h"

#include <fmt/format.h>

#include <stdexcept>
#include <utility>

namespace clustar::bench::trainer::graph {

Graph::Graph(const Shape& input) { nodes_.push_back({"input", Input{}, {}, input}); }

Value Graph::add(std::string name, const Op& op, std::vector<Value> inputs) {
  for (const Value value : inputs) {
    if (value >= nodes_.size()) throw std::invalid_argument(fmt::format("{}: there is no value {} yet", name, value));
  }
  if (std::holds_alternative<Input>(op)) throw std::invalid_argument(name + ": a graph has one input");
  Node node{std::move(name), op, std::move(inputs), {}};
  node.shape = output_shape(op, input_shapes(node));
  nodes_.push_back(std::move(node));
  return last();
}

std::vector<Shape> Graph::input_shapes(const Node& node) const {
  std::vector<Shape> shapes;
  for (const Value value : node.inputs) shapes.push_back(nodes_[value].shape);
  return shapes;
}

std::vector<TensorSpec> Graph::tensors_of(const Node& node) const {
  if (node.inputs.empty()) return {};
  return tensors(node.op, nodes_[node.inputs[0]].shape);
}

std::vector<StateSpec> Graph::states_of(const Node& node) const {
  if (node.inputs.empty()) return {};
  return states(node.op, nodes_[node.inputs[0]].shape);
}

std::size_t Graph::multiply_adds(const Node& node) const {
  if (node.inputs.empty()) return 0;
  return graph::multiply_adds(node.op, nodes_[node.inputs[0]].shape, node.shape);
}

}  // namespace clustar::bench::trainer::graph
