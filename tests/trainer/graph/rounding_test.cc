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

// Rows times columns, in double precision.
Floats product(const Floats& a, const Floats& b, std::size_t rows, std::size_t depth, std::size_t columns,
               bool a_turned, bool b_turned) {
  Floats out(rows * columns);
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < columns; ++c) {
      double sum = 0;
      for (std::size_t d = 0; d < depth; ++d) {
        sum +=
            double{a[a_turned ? d * rows + r : r * depth + d]} * double{b[b_turned ? c * depth + d : d * columns + c]};
      }
      out[r * columns + c] = static_cast<float>(sum);
    }
  }
  return out;
}

Floats plus(Floats a, const Floats& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i % b.size()];
  return a;
}

// first -> second, and the sum of both: `first` has two users, whose gradients are added. All products are of multiples
// of 1/16, so that float32 has them exactly, and 16 bits have not.
TEST(RoundingBackward, IsOfEveryGradientOnItsWayAndOfTheirSums) {
  constexpr std::size_t kBatch = 16, kIn = 4, kWide = 5;
  Graph graph({1, 1, kIn});
  const Value first = graph.add("first", Linear{kWide}, {0});
  const Value second = graph.add("second", Linear{kWide}, {first});
  graph.add("sum", Add{}, {first, second});
  clustar::Rng rng(5);
  const auto values = [&](std::size_t count) {
    Floats all(count);
    for (float& value : all) value = (static_cast<float>(rng.below(81)) - 40) / 16;
    return all;
  };
  const Floats w1 = values(kWide * kIn), b1 = values(kWide), w2 = values(kWide * kWide), b2 = values(kWide);
  const Floats x = values(kBatch * kIn), dy = values(kBatch * kWide);
  Floats parameters;
  std::vector<std::size_t> offsets;
  for (const Floats* tensor : {&w1, &b1, &w2, &b2}) {
    offsets.push_back(parameters.size());
    parameters.insert(parameters.end(), tensor->begin(), tensor->end());
  }
  for (const Precision precision : {Precision::kBfloat16, Precision::kFloat16}) {
    const auto rounded = [&](Floats all) {
      round_to(precision, all);
      return all;
    };
    const auto columns = [](const Floats& all) {
      return product(Floats(kBatch, 1), all, 1, kBatch, kWide, false, false);
    };
    const Floats a = rounded(plus(product(x, w1, kBatch, kIn, kWide, false, true), b1));
    const Floats b = rounded(plus(product(a, w2, kBatch, kWide, kWide, false, true), b2));
    const Floats da = rounded(plus(rounded(product(dy, w2, kBatch, kWide, kWide, false, false)), dy));
    Floats expected;
    for (const Floats& tensor : {product(da, x, kWide, kBatch, kIn, true, false), columns(da),
                                 product(dy, a, kWide, kBatch, kWide, true, false), columns(dy)}) {
      const Floats part = rounded(tensor);
      expected.insert(expected.end(), part.begin(), part.end());
    }
    const auto math = make_cpu_math();
    Network network(graph, *math, offsets, kBatch, 1, precision);
    const auto y = network.forward(parameters.data(), x.data(), kBatch);
    EXPECT_EQ(Floats(y.begin(), y.end()), rounded(plus(a, b)));
    Floats gradients(parameters.size());
    network.backward(parameters.data(), dy, gradients.data(), [](std::size_t) {});
    EXPECT_EQ(gradients, expected);
  }
}

}  // namespace
}  // namespace clustar::bench::trainer::graph
