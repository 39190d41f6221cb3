// Networks in 16 bits, operation by operation: they compute what float32 computes of the rounded operands, rounded.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <ostream>
#include <vector>

#include "bench/trainer/graph/device_math.h"
#include "bench/trainer/graph/network.h"
#include "bench/trainer/precision/precision.h"
#include "tests/trainer/graph/reference.h"

namespace clustar::bench::trainer::graph {
namespace {

using Floats = std::vector<float>;

struct OperationCase {
  Op op;
  Shape in;
};
void PrintTo(const OperationCase& one, std::ostream* out) { *out << label(one.op); }

// A network of one operation: what it makes of a batch, and the gradients of its parameters.
struct OneOperation {
  Graph net;
  std::vector<std::size_t> offsets, sizes;
  std::unique_ptr<DeviceMath> math = make_cpu_math();
  Floats outputs, gradients;

  OneOperation(const OperationCase& one, Precision precision, const Floats& parameters, const Floats& x,
               const Floats& dy)
      : net(graph_of(one)) {
    std::size_t at = 0;
    for (const Node& node : net.nodes()) {
      for (const TensorSpec& tensor : net.tensors_of(node)) {
        offsets.push_back(at);
        sizes.push_back(tensor.elements);
        at += tensor.elements;
      }
    }
    Network network(net, *math, offsets, kBatch, 1, precision);
    const auto y = network.forward(parameters.data(), x.data(), kBatch);
    outputs.assign(y.begin(), y.end());
    gradients.resize(at);
    if (at > 0) network.backward(parameters.data(), dy, gradients.data(), [](std::size_t) {});
  }

  static Graph graph_of(const OperationCase& one) {
    Graph graph(one.in);
    if (std::holds_alternative<Add>(one.op)) {
      graph.add("op", one.op, {0, 0});
    } else {
      graph.then("op", one.op);
    }
    return graph;
  }
  static constexpr std::size_t kBatch = 3;
};

class Rounding : public ::testing::TestWithParam<OperationCase> {};

TEST_P(Rounding, IsOfOperandsAndResultsAndOfNothingBetween) {
  const OperationCase& one = GetParam();
  const Graph graph = OneOperation::graph_of(one);
  clustar::Rng rng(9);
  const auto values = [&](std::size_t count) {
    Floats all(count);
    for (float& value : all) value = static_cast<float>(2 * rng.uniform() - 1);
    return all;
  };
  Floats x = values(OneOperation::kBatch * graph.input().elements());
  const auto* const embedding = std::get_if<Embedding>(&one.op);
  for (float& token : x) {
    if (embedding != nullptr) token = static_cast<float>(rng.below(embedding->vocabulary));
  }
  const Floats dy = values(OneOperation::kBatch * graph.output().elements());
  std::size_t elements = 0;
  for (const TensorSpec& tensor : graph.tensors_of(graph.nodes().back())) elements += tensor.elements;
  const Floats parameters = values(elements);
  const bool multiplies = std::holds_alternative<Linear>(one.op) || std::holds_alternative<Convolution>(one.op);
  for (const Precision precision : {Precision::kBfloat16, Precision::kFloat16}) {
    const auto rounded = [&](Floats all) {
      round_to(precision, all);
      return all;
    };
    const OneOperation exact(one, Precision::kFloat32, multiplies ? rounded(parameters) : parameters,
                             embedding != nullptr ? x : rounded(x), rounded(dy));
    const OneOperation halves(one, precision, parameters, x, dy);
    EXPECT_EQ(halves.outputs, rounded(exact.outputs));
    EXPECT_EQ(halves.gradients, rounded(exact.gradients));
    EXPECT_EQ(std::count(x.begin(), x.end(), 300.0F) > 0, embedding != nullptr) << "a number that bfloat16 lacks";
  }
}

const std::vector<OperationCase> kOperations{
    {Linear{5}, {1, 1, 7}},
    {Linear{.outputs = 3, .per_position = true}, {3, 2, 4}},
    {Convolution{.filters = 4, .kernel = 3, .stride = 2, .padding = 1}, {5, 4, 3}},
    {MaxPool{}, {4, 6, 3}},
    {AdaptiveAveragePool{2, 3}, {5, 5, 2}},
    {BatchNorm{}, {3, 2, 5}},
    {LayerNorm{}, {3, 1, 8}},
    {Relu{}, {2, 3, 5}},
    {Gelu{}, {2, 3, 5}},
    {Add{}, {2, 3, 4}},
    {Embedding{302, 4}, {500, 1, 1}},
    {Attention{2}, {5, 1, 12}},
};
INSTANTIATE_TEST_SUITE_P(All, Rounding, ::testing::ValuesIn(kOperations));

}  // namespace
}  // namespace clustar::bench::trainer::graph
