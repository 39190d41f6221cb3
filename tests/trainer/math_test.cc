// Loss, update and the thread that computes, against known values.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <thread>
#include <vector>

#include "bench/trainer/compute_thread.h"
#include "bench/trainer/loss.h"
#include "bench/trainer/sgd.h"

namespace clustar::bench::trainer {
namespace {

TEST(Loss, KnownValues) {
  const std::vector<float> outputs{0, 0, 1000, 0};
  const std::vector<std::uint16_t> labels{1, 0};
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

// As torch.optim.SGD(lr=0.1, momentum=0.9, weight_decay=0.5).
TEST(Sgd, WeightDecayIsPartOfTheGradient) {
  Sgd sgd(1, 0.1f, 0.9f, 0.5f);
  std::vector<float> parameters{2};
  const std::vector<float> gradients{1};
  sgd.step(parameters, gradients);
  EXPECT_FLOAT_EQ(parameters[0], 2 - 0.1f * 2);
  sgd.step(parameters, gradients);
  EXPECT_FLOAT_EQ(parameters[0], 1.8f - 0.1f * (0.9f * 2 + 1 + 0.5f * 1.8f));
}

}  // namespace
}  // namespace clustar::bench::trainer
