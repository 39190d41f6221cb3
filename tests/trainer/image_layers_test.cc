// Convolution and pooling against their definitions, and networks of them against finite differences.
#include "bench/trainer/image_layers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <vector>

#include "bench/trainer/loss.h"
#include "bench/trainer/model.h"
#include "bench/trainer/random.h"

namespace clustar::bench::trainer {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

std::vector<float> random_values(std::size_t count, Rng& rng) {
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(rng.uniform(-1, 1));
  return values;
}

// A layer with operands for one batch.
struct Bench {
  std::unique_ptr<Layer> layer;
  std::size_t batch;
  std::vector<std::vector<float>> parameters;
  std::vector<std::vector<float>> gradients;
  std::vector<float> x, y, dy, dx, scratch;

  Bench(std::unique_ptr<Layer> of, std::size_t examples, std::uint64_t seed) : layer(std::move(of)), batch(examples) {
    Rng rng(seed);
    for (const TensorSpec& tensor : layer->tensors()) {
      parameters.push_back(random_values(tensor.elements, rng));
      gradients.emplace_back(tensor.elements, 77.0f);
    }
    x = random_values(batch * layer->inputs(), rng);
    dy = random_values(batch * layer->outputs(), rng);
    y.assign(batch * layer->outputs(), 77.0f);
    dx.assign(batch * layer->inputs(), 77.0f);
    scratch.assign(layer->scratch(), 77.0f);
  }

  void run() {
    std::vector<const float*> own;
    std::vector<float*> own_gradients;
    for (const auto& tensor : parameters) own.push_back(tensor.data());
    for (auto& tensor : gradients) own_gradients.push_back(tensor.data());
    const LayerCall call{batch, own, own_gradients, x.data(), y.data(), dy.data(), dx.data(), scratch.data()};
    layer->forward(call);
    layer->backward_parameters(call);
    layer->backward_input(call);
  }
};

struct ConvolutionShape {
  ImageShape image;
  std::size_t filters;
  std::size_t kernel;
  std::size_t batch;
};
class Convolution : public ::testing::TestWithParam<ConvolutionShape> {};

// All three results straight from the definition, in double. The larger batches are more than one group of windows.
TEST_P(Convolution, AgreesWithTheDefinition) {
  const auto& [image, filters, kernel, batch] = GetParam();
  Bench bench(make_conv2d(image, filters, kernel), batch, 3);
  bench.run();
  const ImageShape out = conv2d_output(image, filters, kernel);
  ASSERT_EQ(bench.layer->outputs(), out.elements());
  const std::size_t window = kernel * kernel * image.channels;
  std::vector<double> y(bench.y.size()), dx(bench.x.size()), weights(filters * window), bias(filters);
  for (std::size_t o = 0; o < y.size(); ++o) {
    const std::size_t f = o % filters;
    const std::size_t column = o / filters % out.columns;
    const std::size_t row = o / filters / out.columns % out.rows;
    const std::size_t first = o / out.elements() * image.elements();
    y[o] = double{bench.parameters[1][f]};
    bias[f] += double{bench.dy[o]};
    for (std::size_t w = 0; w < window; ++w) {
      const std::size_t in_row = row + w / image.channels / kernel;
      const std::size_t in_column = column + w / image.channels % kernel;
      const std::size_t in = first + (in_row * image.columns + in_column) * image.channels + w % image.channels;
      y[o] += double{bench.x[in]} * double{bench.parameters[0][f * window + w]};
      dx[in] += double{bench.dy[o]} * double{bench.parameters[0][f * window + w]};
      weights[f * window + w] += double{bench.dy[o]} * double{bench.x[in]};
    }
  }
  for (std::size_t i = 0; i < y.size(); ++i) ASSERT_NEAR(bench.y[i], y[i], 1e-4) << i;
  for (std::size_t i = 0; i < dx.size(); ++i) ASSERT_NEAR(bench.dx[i], dx[i], 1e-4) << i;
  const double tolerance = 1e-5 * static_cast<double>(batch * out.pixels());
  for (std::size_t i = 0; i < weights.size(); ++i) ASSERT_NEAR(bench.gradients[0][i], weights[i], tolerance) << i;
  for (std::size_t i = 0; i < bias.size(); ++i) ASSERT_NEAR(bench.gradients[1][i], bias[i], tolerance) << i;
}

INSTANTIATE_TEST_SUITE_P(Shapes, Convolution,
                         ::testing::Values(ConvolutionShape{{1, 1, 1}, 1, 1, 1}, ConvolutionShape{{3, 5, 2}, 3, 2, 4},
                                           ConvolutionShape{{7, 4, 3}, 5, 4, 3}, ConvolutionShape{{5, 5, 1}, 2, 5, 2},
                                           ConvolutionShape{{28, 28, 1}, 8, 5, 11},
                                           ConvolutionShape{{12, 12, 8}, 4, 5, 9}));

TEST(Conv2d, RepeatsBitForBit) {
  Bench first(make_conv2d({12, 12, 4}, 6, 5), 20, 1);
  Bench second(make_conv2d({12, 12, 4}, 6, 5), 20, 1);
  first.run();
  second.run();
  EXPECT_EQ(first.y, second.y);
  EXPECT_EQ(first.dx, second.dx);
  EXPECT_EQ(first.gradients, second.gradients);
}

TEST(Conv2d, AnEmptyBatchHasZeroGradients) {
  Bench bench(make_conv2d({6, 6, 2}, 3, 3), 0, 1);
  bench.run();
  for (const auto& gradient : bench.gradients) EXPECT_THAT(gradient, Each(0.0f));
}

TEST(MaxPool, TakesTheLargestAndItsGradientGoesThere) {
  Bench bench(make_max_pool({2, 4, 1}, 2), 1, 1);
  bench.x = {1, 2, -1, -2, 4, 3, -3, -1};
  bench.dy = {10, 20};
  bench.run();
  EXPECT_THAT(bench.y, ElementsAre(4, -1));
  EXPECT_THAT(bench.dx, ElementsAre(0, 0, 20, 0, 10, 0, 0, 0));  // of two -1 the first
}

TEST(MaxPool, ChannelsAreApartAndWhatFillsNoWindowIsLeftOut) {
  Bench bench(make_max_pool({3, 3, 2}, 2), 2, 1);
  bench.x.assign(36, 0);
  bench.x[0] = 5;        // channel 0, first window of the first image
  bench.x[9] = 6;        // row 1, column 1, channel 1
  bench.x[4] = 99;       // column 2 is outside
  bench.x[18 + 16] = 9;  // row 2 of the second image is outside
  bench.run();
  EXPECT_EQ(bench.layer->outputs(), 2u);
  EXPECT_THAT(bench.y, ElementsAre(5, 6, 0, 0));
  EXPECT_EQ(bench.dx[0], bench.dy[0]);
  EXPECT_EQ(bench.dx[9], bench.dy[1]);
  EXPECT_EQ(bench.dx[4], 0);
}

TEST(ImageLayers, WindowsThatDoNotFitAreRefused) {
  EXPECT_THROW(make_conv2d({4, 6, 1}, 2, 5), std::invalid_argument);
  EXPECT_THROW(make_conv2d({4, 6, 1}, 2, 0), std::invalid_argument);
  EXPECT_THROW(make_max_pool({1, 2, 1}, 2), std::invalid_argument);
  EXPECT_THROW(make_max_pool({1, 2, 1}, 0), std::invalid_argument);
}

// Convolutions, pooling and dense layers in a chain; only the second convolution's input gradient is used by another.
TEST(ImageNetwork, GradientsMatchFiniteDifferences) {
  Model model{"small", "", 8, 8, 3, {}};
  model.layers.push_back(make_conv2d({8, 8, 1}, 3, 3));
  model.layers.push_back(make_relu(6 * 6 * 3));
  model.layers.push_back(make_max_pool({6, 6, 3}, 2));
  model.layers.push_back(make_conv2d({3, 3, 3}, 4, 2));
  model.layers.push_back(make_relu(2 * 2 * 4));
  model.layers.push_back(make_linear(16, 3));
  const BucketPlan plan = plan_buckets(model.tensor_elements());
  const std::vector<std::uint8_t> labels{0, 2, 1, 1, 0};
  for (const std::uint64_t seed : {1, 2, 3}) {
    Network network(model, plan, labels.size());
    std::vector<float> parameters(plan.elements);
    network.initialise(parameters, seed);
    Rng rng(seed, 99);
    const std::vector<float> x = random_values(labels.size() * 64, rng);
    const auto mean_loss = [&] {
      const auto outputs = network.forward(parameters, x.data(), labels.size());
      return softmax_cross_entropy(outputs, labels, 3, 1, {}).loss / static_cast<double>(labels.size());
    };
    const auto outputs = network.forward(parameters, x.data(), labels.size());
    std::vector<float> output_gradient(outputs.size());
    softmax_cross_entropy(outputs, labels, 3, 1.0f / 5, output_gradient);
    std::vector<float> gradients(plan.elements, 1e9f);
    network.backward(parameters, output_gradient, gradients, [](std::size_t) {});
    constexpr float kStep = 5e-4f;
    const double here = mean_loss();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const float before = parameters[i];
      parameters[i] = before + kStep;
      const double above = (mean_loss() - here) / kStep;
      parameters[i] = before - kStep;
      const double below = (here - mean_loss()) / kStep;
      parameters[i] = before;
      // A kink of ReLU or pooling within a step spoils the difference on its own side only.
      const double error = std::min(std::abs(gradients[i] - above), std::abs(gradients[i] - below));
      EXPECT_LT(error, 2e-3) << "parameter " << i << ", seed " << seed << ": " << gradients[i] << ", not " << below
                             << " or " << above;
    }
  }
}

void expect_a_chain(const Model& model) {
  for (std::size_t i = 0; i + 1 < model.layers.size(); ++i) {
    EXPECT_EQ(model.layers[i]->outputs(), model.layers[i + 1]->inputs()) << model.layers[i]->name();
  }
}

TEST(Cnn, HasTheShapeThatItsDescriptionSays) {
  const Model model = *make_model("cnn");
  EXPECT_EQ(model.shape, "28x28, conv 5x5x16, pool 2, conv 5x5x32, pool 2, 512-128-10, ReLU");
  EXPECT_THAT(model.tensor_elements(), ElementsAre(400, 16, 12800, 32, 65536, 128, 1280, 10));
  const BucketPlan plan = plan_buckets(model.tensor_elements());
  EXPECT_EQ(plan.elements, 80202u);
  EXPECT_EQ(plan.buckets.size(), 1u);
  expect_a_chain(model);
}

TEST(CnnWide, ItsDenseLayersShareABucketWhoseMessagesMayLoseOnTenRanks) {
  const Model model = *make_model("cnn-wide");
  EXPECT_EQ(model.shape, "28x28, conv 5x5x8, pool 2, conv 5x5x16, pool 2, 256-1280-10, ReLU");
  EXPECT_THAT(model.tensor_elements(), ElementsAre(200, 8, 3200, 16, 327680, 1280, 12800, 10));
  const BucketPlan plan = plan_buckets(model.tensor_elements());
  ASSERT_EQ(plan.buckets.size(), 2u);
  EXPECT_THAT(plan.buckets[0].tensors, ElementsAre(7, 6, 5, 4));
  EXPECT_EQ(plan.buckets[0].elements, 341770u);
  EXPECT_EQ(plan.buckets[1].elements, 3424u);
  // A ring over one channel sends a rank's part in two messages; none below 64 KiB may lose (docs/loss.md).
  EXPECT_GE(plan.buckets[0].elements * sizeof(float) / 10 / 2, 64u << 10);
  expect_a_chain(model);
}

}  // namespace
}  // namespace clustar::bench::trainer
