// Whole graphs: residual edges, order and completeness of gradients, state, and what does not fit.
#include "bench/trainer/graph/network.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "tests/trainer/graph/tensor_layout.h"

namespace clustar::bench::trainer::graph {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

// Values with two users each, one of them twice by the same; batch norm, and a way around it.
Graph residual_graph() {
  Graph net({4, 4, 2});
  const Value stem = net.then("stem", Convolution{.filters = 3, .kernel = 3, .padding = 1});
  net.then("norm", BatchNorm{});
  const Value inner = net.then("relu", Relu{});
  net.then("conv", Convolution{.filters = 3, .kernel = 3, .padding = 1, .bias = false});
  const Value sum = net.add("add", Add{}, {net.last(), stem});
  net.add("double", Add{}, {sum, sum});
  net.add("more", Add{}, {net.last(), inner});
  net.then("pool", AdaptiveAveragePool{1, 1});
  net.then("head", Linear{2});
  return net;
}

struct Problem {
  Graph net;
  std::size_t batch;
  std::vector<std::size_t> sizes, offsets;
  std::unique_ptr<DeviceMath> math = make_cpu_math();
  std::unique_ptr<Network> network;
  std::vector<float> parameters, gradients, x, dy;

  explicit Problem(Graph of, std::uint64_t seed = 1, std::size_t examples = 3) : net(std::move(of)), batch(examples) {
    TensorLayout layout = layout_of(net);
    sizes = std::move(layout.sizes);
    offsets = std::move(layout.offsets);
    network = std::make_unique<Network>(net, *math, offsets, batch, seed);
    parameters.resize(layout.elements);
    gradients.assign(layout.elements, std::nanf(""));
    network->initialise(parameters, seed);
    clustar::Rng rng(seed + 100);
    const auto values = [&](std::size_t count) {
      std::vector<float> all(count);
      for (float& value : all) value = static_cast<float>(2 * rng.uniform() - 1);
      return all;
    };
    x = values(batch * net.input().elements());
    dy = values(batch * net.output().elements());
  }

  double weighted_sum() {
    const auto y = network->forward(parameters.data(), x.data(), batch);
    double sum = 0;
    for (std::size_t i = 0; i < y.size(); ++i) sum += double{y[i]} * double{dy[i]};
    return sum;
  }
  void backward() {
    network->forward(parameters.data(), x.data(), batch);
    network->backward(parameters.data(), dy, gradients.data(), [](std::size_t) {});
  }
};

TEST(Network, GradientsOfValuesWithManyUsersMatchFiniteDifferences) {
  for (const std::uint64_t seed : {1, 2, 3}) {
    Problem problem(residual_graph(), seed);
    problem.backward();
    constexpr float kStep = 2e-3f;
    const double here = problem.weighted_sum();
    for (std::size_t i = 0; i < problem.parameters.size(); ++i) {
      const float before = problem.parameters[i];
      problem.parameters[i] = before + kStep;
      const double above = (problem.weighted_sum() - here) / double{kStep};
      problem.parameters[i] = before - kStep;
      const double below = (here - problem.weighted_sum()) / double{kStep};
      problem.parameters[i] = before;
      // A kink of ReLU within a step spoils the difference on its own side only.
      const double middle = (above + below) / 2;
      const double error =
          std::min({std::abs(double{problem.gradients[i]} - above), std::abs(double{problem.gradients[i]} - below),
                    std::abs(double{problem.gradients[i]} - middle)});
      EXPECT_LT(error, 1e-2) << "parameter " << i << ", seed " << seed << ": " << problem.gradients[i] << ", not "
                             << below << " or " << above;
    }
  }
}

TEST(Network, TensorsBecomeReadyInReverseOrderAndComplete) {
  Problem problem(residual_graph());
  problem.network->forward(problem.parameters.data(), problem.x.data(), problem.batch);
  std::vector<std::size_t> order;
  problem.network->backward(problem.parameters.data(), problem.dy, problem.gradients.data(), [&](std::size_t tensor) {
    order.push_back(tensor);
    for (std::size_t i = 0; i < problem.sizes[tensor]; ++i) {
      ASSERT_FALSE(std::isnan(problem.gradients[problem.offsets[tensor] + i])) << "tensor " << tensor;
    }
  });
  EXPECT_THAT(order, ElementsAre(6u, 5u, 4u, 3u, 2u, 1u, 0u));
}

// Another rank may be adding to a gradient from the moment it is ready.
TEST(Network, AGradientThatWasReadyIsNotReadAgain) {
  Problem expected(residual_graph());
  expected.backward();
  Problem problem(residual_graph());
  problem.network->forward(problem.parameters.data(), problem.x.data(), problem.batch);
  std::vector<float> found(problem.gradients.size());
  problem.network->backward(problem.parameters.data(), problem.dy, problem.gradients.data(), [&](std::size_t tensor) {
    const auto at = static_cast<std::ptrdiff_t>(problem.offsets[tensor]);
    const auto size = static_cast<std::ptrdiff_t>(problem.sizes[tensor]);
    std::copy_n(problem.gradients.begin() + at, size, found.begin() + at);
    std::fill_n(problem.gradients.begin() + at, size, 1e9f);
  });
  EXPECT_EQ(found, expected.gradients);
  EXPECT_THAT(problem.gradients, Each(1e9f));
}

TEST(Network, AnEmptyShareHasZeroGradientsAndChangesNoState) {
  Problem problem(residual_graph());
  const auto state = problem.network->state();
  problem.network->forward(problem.parameters.data(), problem.x.data(), 0);
  std::size_t ready = 0;
  problem.network->backward(problem.parameters.data(), {}, problem.gradients.data(), [&](std::size_t) { ++ready; });
  EXPECT_EQ(ready, problem.sizes.size());
  EXPECT_THAT(problem.gradients, Each(0.0f));
  EXPECT_EQ(problem.network->state(), state);
}

TEST(Network, InitialisationDependsOnTheSeedOnly) {
  EXPECT_EQ(Problem(residual_graph(), 5).parameters, Problem(residual_graph(), 5).parameters);
  EXPECT_NE(Problem(residual_graph(), 5).parameters, Problem(residual_graph(), 6).parameters);
}

TEST(Network, StateIsChangedByTrainingOnlyAndCanBeSet) {
  Problem problem(residual_graph());
  EXPECT_THAT(problem.network->state(), ElementsAre(0, 0, 0, 1, 1, 1));
  problem.network->evaluate(problem.parameters.data(), problem.x.data(), problem.batch);
  EXPECT_THAT(problem.network->state(), ElementsAre(0, 0, 0, 1, 1, 1));
  problem.network->forward(problem.parameters.data(), problem.x.data(), problem.batch);
  const auto trained = problem.network->state();
  EXPECT_NE(trained[0], 0);
  Problem other(residual_graph());
  const auto evaluate = [&](Problem& one) {
    const auto y = one.network->evaluate(problem.parameters.data(), problem.x.data(), problem.batch);
    return std::vector<float>(y.begin(), y.end());
  };
  EXPECT_NE(evaluate(other), evaluate(problem));
  other.network->set_state(trained);
  EXPECT_EQ(evaluate(other), evaluate(problem));
}

Graph dropping_graph() {
  Graph net({1, 1, 64});
  net.then("drop", Dropout{0.5});
  net.then("head", Linear{8});
  return net;
}

TEST(Network, DropoutDiffersFromPassToPassAndFromRankToRank) {
  Problem problem(dropping_graph());
  const auto run = [&](Network& network) {
    const auto y = network.forward(problem.parameters.data(), problem.x.data(), problem.batch);
    return std::vector<float>(y.begin(), y.end());
  };
  const auto network = [&](std::uint64_t draws) {
    return Network(problem.net, *problem.math, problem.offsets, 3, draws);
  };
  Network first = network(1);
  Network same = network(1);
  Network other = network(2);
  const auto pass = run(first);
  EXPECT_EQ(run(same), pass);
  EXPECT_NE(run(first), pass);
  EXPECT_NE(run(other), pass);
}

TEST(Graph, WhatDoesNotFitIsRefused) {
  Graph net({4, 6, 1});
  EXPECT_THROW(net.then("conv", Convolution{.filters = 2, .kernel = 5}), std::invalid_argument);
  EXPECT_THROW(net.then("conv", Convolution{.filters = 2, .kernel = 0}), std::invalid_argument);
  EXPECT_THROW(net.then("conv", Convolution{.filters = 2, .kernel = 2, .stride = 0}), std::invalid_argument);
  EXPECT_THROW(net.then("pool", MaxPool{.window = 5}), std::invalid_argument);
  EXPECT_THROW(net.then("pool", MaxPool{.window = 0}), std::invalid_argument);
  EXPECT_THROW(net.then("pool", MaxPool{.window = 2, .padding = 2}), std::invalid_argument);
  EXPECT_THROW(net.then("drop", Dropout{1}), std::invalid_argument);
  EXPECT_THROW(net.then("heads", Attention{2}), std::invalid_argument);
  EXPECT_THROW(net.add("add", Add{}, {0}), std::invalid_argument);
  EXPECT_THROW(net.add("add", Add{}, {0, 1}), std::invalid_argument);
  EXPECT_EQ(net.nodes().size(), 1u);
  net.then("head", Linear{3});
  EXPECT_THROW(net.add("add", Add{}, {0, 1}), std::invalid_argument);  // of two shapes
}

TEST(Graph, ANodeThatNobodyUsesIsRefusedByTheNetwork) {
  Graph net({1, 1, 4});
  net.add("unused", Linear{2}, {0});
  net.add("head", Linear{2}, {0});
  const std::vector<std::size_t> offsets{0, 8, 10, 18};
  const auto math = make_cpu_math();
  EXPECT_THROW(Network(net, *math, offsets, 1), std::invalid_argument);
}

}  // namespace
}  // namespace clustar::bench::trainer::graph
