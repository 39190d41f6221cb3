// The worked example of mini-batch SGD in the presentation "CLUSTAR: AI Training Platform Powered by High Performance
// Networking" (J. Zhang, 2018): one neuron y = w x + b, the batch (1, 5), (2, 7), the loss (y - y_real)^2 / 2 summed
// over it, w = b = 1, learning rate 0.1. One step makes b 1.7 and w 2.1. Then the same on two workers, an example each,
// who push gradients to a parameter server and pull their sum.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "bench/proxy/bootstrap.h"
#include "bench/trainer/buckets.h"
#include "bench/trainer/graph/network.h"
#include "bench/trainer/graph/plain_math.h"
#include "bench/trainer/ps_collective.h"
#include "bench/trainer/reducer.h"
#include "bench/trainer/sgd.h"
#include "tests/trainer/fake_links.h"
#include "tests/trainer/on_ranks.h"

namespace clustar::bench::trainer {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

constexpr std::array<float, 2> kX{1, 2};
constexpr std::array<float, 2> kReal{5, 7};
constexpr float kRate = 0.1f;

graph::Graph one_neuron() {
  graph::Graph net({1, 1, 1});
  net.then("neuron", graph::Linear{.outputs = 1});
  return net;
}

// One worker: the network, its parameters, and what a step does to them.
struct Neuron {
  graph::Graph net = one_neuron();
  graph::PlainMath math;
  BucketPlan plan = plan_buckets(std::array<std::size_t, 2>{1, 1});  // of w and b
  graph::Network network{net, math, plan.tensor_offset, kX.size()};
  std::vector<float> parameters{1, 1};
  std::vector<float> gradients{0, 0};
  Sgd sgd{2, kRate, 0};
  std::vector<float> outputs;
  float loss = 0;

  float w() const { return parameters[plan.tensor_offset[0]]; }
  float b() const { return parameters[plan.tensor_offset[1]]; }
  float gradient_of_w() const { return gradients[plan.tensor_offset[0]]; }
  float gradient_of_b() const { return gradients[plan.tensor_offset[1]]; }

  // Of the examples from `first` on. The loss's gradient by an output is y - y_real.
  void compute(std::size_t first, std::size_t count, GradientReducer& reducer) {
    const auto made = network.forward(parameters.data(), kX.data() + first, count);
    outputs.assign(made.begin(), made.end());
    std::vector<float> differences;
    for (std::size_t i = 0; i < count; ++i) {
      differences.push_back(outputs[i] - kReal[first + i]);
      loss += differences.back() * differences.back() / 2;
    }
    network.backward(parameters.data(), differences, gradients.data(),
                     [&](std::size_t tensor) { reducer.tensor_ready(tensor); });
  }

  // One step on those examples, beside what `collective` sums. Null: alone.
  Result<void> step(std::size_t first, std::size_t count, Collective* collective) {
    GradientReducer reducer(plan, gradients, collective);
    compute(first, count, reducer);
    if (const auto done = reducer.finish(); !done) return tl::unexpected(done.error());
    sgd.step(parameters, gradients);
    return {};
  }
};

TEST(WorkedExample, OneStepOnTheWholeBatch) {
  Neuron neuron;
  ASSERT_TRUE(neuron.step(0, 2, nullptr));
  EXPECT_THAT(neuron.outputs, ElementsAre(2, 3));
  EXPECT_EQ(neuron.loss, (9 + 16) / 2.0f);
  EXPECT_EQ(neuron.gradient_of_w(), -3 * 1 - 4 * 2);
  EXPECT_EQ(neuron.gradient_of_b(), -3 - 4);
  EXPECT_FLOAT_EQ(neuron.w(), 2.1f);
  EXPECT_FLOAT_EQ(neuron.b(), 1.7f);
}

TEST(WorkedExample, TheSecondStepIsCloser) {
  Neuron neuron;
  ASSERT_TRUE(neuron.step(0, 2, nullptr));
  const float before = std::exchange(neuron.loss, 0.0f);
  ASSERT_TRUE(neuron.step(0, 2, nullptr));
  EXPECT_THAT(neuron.outputs, ElementsAre(::testing::FloatEq(3.8f), ::testing::FloatEq(5.9f)));
  EXPECT_FLOAT_EQ(neuron.loss, (1.2f * 1.2f + 1.1f * 1.1f) / 2);
  EXPECT_LT(neuron.loss, before);
  EXPECT_FLOAT_EQ(neuron.w(), 2.1f + 0.1f * (1.2f * 1 + 1.1f * 2));
  EXPECT_FLOAT_EQ(neuron.b(), 1.7f + 0.1f * (1.2f + 1.1f));
}

// Workers with an example each: what is theirs before the sum, and what all have after it.
void expect_the_same_step(const std::array<Neuron, 2>& workers) {
  Neuron alone;
  ASSERT_TRUE(alone.step(0, 2, nullptr));
  for (std::size_t worker = 0; worker < workers.size(); ++worker) {
    EXPECT_THAT(workers[worker].outputs, ElementsAre(alone.outputs[worker]));
    EXPECT_EQ(workers[worker].gradients, alone.gradients);
    EXPECT_EQ(workers[worker].parameters, alone.parameters) << "worker " << worker;
  }
  EXPECT_EQ(workers[0].loss + workers[1].loss, alone.loss);
}

TEST(WorkedExample, TwoWorkersDoTheSameStep) {
  std::array<Neuron, 2> workers;
  FakeWorld world(2);
  const auto errors = tests::on_ranks(2, [&](int rank) {
    const auto collective = world.collective(rank);
    return workers[static_cast<std::size_t>(rank)].step(static_cast<std::size_t>(rank), 1, collective.get());
  });
  EXPECT_THAT(errors, Each(std::string()));
  expect_the_same_step(workers);
}

TEST(WorkedExample, TwoWorkersPushToAParameterServerAndPull) {
  std::array<Neuron, 2> workers;
  const auto root = proxy::Bootstrap::pick_loopback_root();
  ASSERT_TRUE(root);
  const auto errors = tests::on_ranks(2, [&](int rank) -> Result<void> {
    auto bootstrap = proxy::Bootstrap::join({.rank = rank, .size = 2, .root = *root});
    if (!bootstrap) return tl::unexpected(bootstrap.error());
    auto collective = PsCollective::create(**bootstrap, {.root = *root, .token = 1});
    if (!collective) return tl::unexpected(collective.error());
    const auto at = static_cast<std::size_t>(rank);
    if (auto ok = workers[at].step(at, 1, collective->get()); !ok) return ok;
    return (*collective)->close();
  });
  EXPECT_THAT(errors, Each(std::string()));
  expect_the_same_step(workers);
}

}  // namespace
}  // namespace clustar::bench::trainer
