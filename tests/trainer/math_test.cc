// Matrix products, layers, loss and update, against slow or analytic truth.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <thread>
#include <tuple>
#include <vector>

#include "bench/trainer/compute_thread.h"
#include "bench/trainer/gemm.h"
#include "bench/trainer/loss.h"
#include "bench/trainer/model.h"
#include "bench/trainer/random.h"
#include "bench/trainer/sgd.h"

namespace clustar::bench::trainer {
namespace {

std::vector<float> random_values(std::size_t count, Rng& rng) {
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(rng.uniform(-1, 1));
  return values;
}

// Straight from the definition, in double.
std::vector<double> exact_gemm(const GemmShape& shape, const std::vector<float>& a, const std::vector<float>& b) {
  std::vector<double> c(shape.m * shape.n);
  for (std::size_t i = 0; i < shape.m; ++i) {
    for (std::size_t j = 0; j < shape.n; ++j) {
      for (std::size_t p = 0; p < shape.k; ++p) {
        const float x = shape.a == Trans::kYes ? a[p * shape.m + i] : a[i * shape.k + p];
        const float y = shape.b == Trans::kYes ? b[j * shape.k + p] : b[p * shape.n + j];
        c[i * shape.n + j] += double{x} * double{y};
      }
    }
  }
  return c;
}

class Gemm : public ::testing::TestWithParam<std::tuple<Trans, Trans>> {};

TEST_P(Gemm, BothKindsAgreeWithTheDefinition) {
  Rng rng(3);
  const std::size_t shapes[][3] = {{1, 1, 1}, {5, 3, 7}, {4, 10, 784}, {33, 65, 129}, {10, 512, 16}, {128, 10, 64}};
  for (const auto& [m, n, k] : shapes) {
    const GemmShape shape{std::get<0>(GetParam()), std::get<1>(GetParam()), m, n, k};
    const std::vector<float> a = random_values(m * k, rng);
    const std::vector<float> b = random_values(k * n, rng);
    const std::vector<double> expected = exact_gemm(shape, a, b);
    std::vector<float> plain(m * n, 99.0f);
    std::vector<float> fast(m * n, 99.0f);
    plain_gemm(shape, a.data(), b.data(), plain.data());
    gemm(shape, a.data(), b.data(), fast.data());
    const double tolerance = 1e-6 * static_cast<double>(k) + 1e-6;
    for (std::size_t i = 0; i < m * n; ++i) {
      ASSERT_NEAR(plain[i], expected[i], tolerance) << m << "x" << n << "x" << k << " at " << i;
      ASSERT_NEAR(fast[i], expected[i], tolerance) << m << "x" << n << "x" << k << " at " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AllTranspositions, Gemm,
                         ::testing::Combine(::testing::Values(Trans::kNo, Trans::kYes),
                                            ::testing::Values(Trans::kNo, Trans::kYes)));

TEST(GemmEdges, DepthZeroGivesZeros) {
  std::vector<float> c(6, 5.0f);
  const float unused = 0;
  gemm({Trans::kYes, Trans::kNo, 2, 3, 0}, &unused, &unused, c.data());
  EXPECT_THAT(c, ::testing::Each(0.0f));
  c.assign(6, 5.0f);
  plain_gemm({Trans::kYes, Trans::kNo, 2, 3, 0}, &unused, &unused, c.data());
  EXPECT_THAT(c, ::testing::Each(0.0f));
}

TEST(GemmEdges, RepeatsBitForBit) {
  Rng rng(4);
  const GemmShape shape{Trans::kNo, Trans::kYes, 32, 512, 784};
  const std::vector<float> a = random_values(shape.m * shape.k, rng);
  const std::vector<float> b = random_values(shape.n * shape.k, rng);
  std::vector<float> first(shape.m * shape.n);
  std::vector<float> second(shape.m * shape.n);
  gemm(shape, a.data(), b.data(), first.data());
  gemm(shape, a.data(), b.data(), second.data());
  EXPECT_EQ(first, second);
}

Model small_model() {
  Model model{"small", "", 1, 6, 3, {}};
  model.layers.push_back(make_linear(6, 5));
  model.layers.push_back(make_relu(5));
  model.layers.push_back(make_linear(5, 4));
  model.layers.push_back(make_relu(4));
  model.layers.push_back(make_linear(4, 3));
  return model;
}

struct SmallProblem {
  Model model = small_model();
  BucketPlan plan = plan_buckets(model.tensor_elements(), 64, 64);
  Network network{model, plan, 8};
  std::vector<float> parameters = std::vector<float>(plan.elements);
  std::vector<float> x;
  std::vector<std::uint8_t> labels{0, 2, 1, 1, 0, 2, 2, 1};

  explicit SmallProblem(std::uint64_t seed) {
    network.initialise(parameters, seed);
    Rng rng(seed, 99);
    x = random_values(labels.size() * 6, rng);
  }
  double mean_loss() {
    const auto outputs = network.forward(parameters, x.data(), labels.size());
    return softmax_cross_entropy(outputs, labels, 3, 1, {}).loss / static_cast<double>(labels.size());
  }
};

TEST(Network, GradientsMatchFiniteDifferences) {
  for (const std::uint64_t seed : {1, 2, 3}) {
    SmallProblem problem(seed);
    std::vector<float> gradients(problem.plan.elements, 1e9f);
    const auto outputs = problem.network.forward(problem.parameters, problem.x.data(), problem.labels.size());
    std::vector<float> output_gradient(outputs.size());
    softmax_cross_entropy(outputs, problem.labels, 3, 1.0f / 8, output_gradient);
    problem.network.backward(problem.parameters, output_gradient, gradients, [](std::size_t) {});
    constexpr float kStep = 1e-3f;
    for (std::size_t i = 0; i < problem.parameters.size(); ++i) {
      const float before = problem.parameters[i];
      problem.parameters[i] = before + kStep;
      const double above = problem.mean_loss();
      problem.parameters[i] = before - kStep;
      const double below = problem.mean_loss();
      problem.parameters[i] = before;
      EXPECT_NEAR(gradients[i], (above - below) / (2 * kStep), 2e-3) << "parameter " << i << ", seed " << seed;
    }
  }
}

TEST(Network, TensorsBecomeReadyInReverseOrderAndComplete) {
  SmallProblem problem(1);
  std::vector<float> gradients(problem.plan.elements, std::nanf(""));
  std::vector<float> output_gradient(8 * 3, 0.1f);
  problem.network.forward(problem.parameters, problem.x.data(), 8);
  const auto sizes = problem.model.tensor_elements();
  std::vector<std::size_t> order;
  problem.network.backward(problem.parameters, output_gradient, gradients, [&](std::size_t tensor) {
    order.push_back(tensor);
    for (std::size_t i = 0; i < sizes[tensor]; ++i) {
      ASSERT_FALSE(std::isnan(gradients[problem.plan.tensor_offset[tensor] + i])) << "tensor " << tensor;
    }
  });
  EXPECT_THAT(order, ::testing::ElementsAre(5u, 4u, 3u, 2u, 1u, 0u));
}

TEST(Network, AnEmptyShareHasZeroGradients) {
  SmallProblem problem(1);
  std::vector<float> gradients(problem.plan.elements, 7.0f);
  problem.network.forward(problem.parameters, problem.x.data(), 0);
  problem.network.backward(problem.parameters, {}, gradients, [](std::size_t) {});
  EXPECT_THAT(gradients, ::testing::Each(0.0f));
}

TEST(Network, InitialisationDependsOnTheSeedOnly) {
  EXPECT_EQ(SmallProblem(5).parameters, SmallProblem(5).parameters);
  EXPECT_NE(SmallProblem(5).parameters, SmallProblem(6).parameters);
}

TEST(Models, ParameterCounts) {
  EXPECT_EQ(plan_buckets(make_model("lr")->tensor_elements()).elements, 7850u);
  EXPECT_EQ(plan_buckets(make_model("mlp")->tensor_elements()).elements, 669706u);
  EXPECT_EQ(plan_buckets(make_model("cnn")->tensor_elements()).elements, 80202u);
  EXPECT_EQ(plan_buckets(make_model("mlp-small")->tensor_elements()).elements, 407050u);
  EXPECT_EQ(plan_buckets(make_model("cnn-wide")->tensor_elements()).elements, 345194u);
}

TEST(Models, AnUnknownNameNamesTheKnownOnes) {
  const auto model = make_model("vgg16");
  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(model.error().message, ::testing::AllOf(::testing::HasSubstr("vgg16"),
                                                      ::testing::HasSubstr("lr, mlp-small, mlp, cnn, cnn-wide")));
}

TEST(Loss, KnownValues) {
  const std::vector<float> outputs{0, 0, 1000, 0};
  const std::vector<std::uint8_t> labels{1, 0};
  std::vector<float> gradient(4);
  const LossSum sum = softmax_cross_entropy(outputs, labels, 2, 0.5f, gradient);
  EXPECT_NEAR(sum.loss, std::log(2.0), 1e-12);
  EXPECT_EQ(sum.correct, 1u);  // of the tie, the first class counts
  EXPECT_THAT(gradient, ::testing::Pointwise(::testing::FloatEq(), {0.25f, -0.25f, 0.0f, 0.0f}));
}

TEST(ComputeThread, FlushesDenormalsAndRestores) {
  const auto half = [] {
    volatile float tiny = std::numeric_limits<float>::min();
    return tiny * 0.5f;
  };
  ASSERT_GT(half(), 0.0f);
  {
    const ComputeThread thread;
    EXPECT_EQ(half(), 0.0f);
    std::thread([&] { EXPECT_EQ(half(), 0.0f); }).join();
  }
  EXPECT_GT(half(), 0.0f);
}

TEST(Sgd, MomentumAccumulates) {
  Sgd sgd(1, 0.1f, 0.9f);
  std::vector<float> parameters{1};
  const std::vector<float> gradients{1};
  sgd.step(parameters, gradients);
  EXPECT_FLOAT_EQ(parameters[0], 0.9f);
  sgd.step(parameters, gradients);
  EXPECT_FLOAT_EQ(parameters[0], 0.9f - 0.19f);
}

}  // namespace
}  // namespace clustar::bench::trainer
