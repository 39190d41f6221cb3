// A network as a directed acyclic graph of operations. Data only: a Network runs it.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "bench/trainer/graph/op.h"
#include "bench/trainer/graph/shape.h"

namespace clustar::bench::trainer::graph {

// What a node makes is named by the node's index.
using Value = std::size_t;

struct Node {
  std::string name;  // unique among those with tensors: "layer1.0.conv1"
  Op op;
  std::vector<Value> inputs;
  Shape shape;  // of its output
};

// Nodes lie in the order in which they were added, which is an order to run them in: an input is always there before.
// The last one is the output. Parameter order is node order.
class Graph {
 public:
  explicit Graph(const Shape& input);

  // Throws std::invalid_argument when the inputs do not exist or do not fit `op`.
  Value add(std::string name, const Op& op, std::vector<Value> inputs);
  // Of the value that was added last.
  Value then(std::string name, const Op& op) { return add(std::move(name), op, {last()}); }
  Value last() const { return nodes_.size() - 1; }

  const std::vector<Node>& nodes() const { return nodes_; }
  const Shape& input() const { return nodes_.front().shape; }
  const Shape& output() const { return nodes_.back().shape; }
  std::vector<Shape> input_shapes(const Node& node) const;
  std::vector<TensorSpec> tensors_of(const Node& node) const;  // named within the node
  std::vector<StateSpec> states_of(const Node& node) const;
  std::size_t multiply_adds(const Node& node) const;

 private:
  std::vector<Node> nodes_;
};

}  // namespace clustar::bench::trainer::graph
