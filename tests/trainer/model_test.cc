// The models: parameters to the digit, buckets, and that each learns at a small size.
#include "bench/trainer/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <ostream>
#include <set>

#include "bench/trainer/buckets.h"
#include "bench/trainer/data/images.h"
#include "bench/trainer/data/text.h"
#include "bench/trainer/metrics.h"
#include "tests/trainer/data/text_of.h"
#include "tests/trainer/fake_links.h"
#include "tests/trainer/problem.h"

namespace clustar::bench::trainer {
namespace {

using ::testing::AllOf;
using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pointwise;

std::size_t parameters(const Model& model) { return plan_buckets(model.tensor_elements()).elements; }

std::vector<double> mib(const Model& model) {
  std::vector<double> result;
  for (const Bucket& bucket : plan_buckets(model.tensor_elements()).buckets) {
    result.push_back(static_cast<double>(bucket.elements * sizeof(float)) / (1 << 20));
  }
  return result;
}

// Those of images are torchvision's: sum(p.numel() for p in torchvision.models.X().parameters()).
TEST(Models, ParameterCounts) {
  EXPECT_EQ(parameters(*make_model("lr")), 7850u);
  EXPECT_EQ(parameters(*make_model("mlp-small")), 407050u);
  EXPECT_EQ(parameters(*make_model("mlp")), 669706u);
  EXPECT_EQ(parameters(*make_model("cnn")), 80202u);
  EXPECT_EQ(parameters(*make_model("cnn-wide")), 345194u);
  EXPECT_EQ(parameters(*make_model("alexnet")), 61100840u);
  EXPECT_EQ(parameters(*make_model("vgg16")), 138357544u);
  EXPECT_EQ(parameters(*make_model("resnet50")), 25557032u);
  // (32 + 64) 128 for tokens and places, 12 * 128^2 + 13 * 128 a block, 2 * 128 for the last norm, 128 * 32.
  EXPECT_EQ(parameters(*make_model("gpt")), 809728u);
}

TEST(Models, TheSizeOfImagesChangesNoParameter) {
  for (const char* name : {"alexnet", "vgg16", "resnet50"}) {
    EXPECT_EQ(make_model(name, {.image_size = 64})->tensor_elements(), make_model(name)->tensor_elements()) << name;
  }
}

TEST(Models, ClassesChangeTheLastLayerOnly) {
  EXPECT_EQ(parameters(*make_model("resnet50", {.classes = 10})), 25557032u - 990 * 2049);
  EXPECT_EQ(parameters(*make_model("vgg16", {.classes = 10})), 138357544u - 990 * 4097);
}

// fvcore's and torchvision's figures for one image of 224 x 224: 4.09, 15.47 and 0.714 G.
TEST(Models, MultiplyAdds) {
  const auto giga = [](const char* name) {
    const Model model = *make_model(name);
    return describe(model, plan_buckets(model.tensor_elements())).at("multiply_adds").get<double>() / 1e9;
  };
  EXPECT_NEAR(giga("resnet50"), 4.09, 0.005);
  EXPECT_NEAR(giga("vgg16"), 15.47, 0.005);
  EXPECT_NEAR(giga("alexnet"), 0.714, 0.0005);
}

TEST(Models, TensorsAreNamedAndOrderedAsTorchvisionDoes) {
  const auto tensors = make_model("resnet50")->tensors();
  ASSERT_EQ(tensors.size(), 161u);
  std::set<std::string> names;
  for (const auto& tensor : tensors) names.insert(tensor.name);
  EXPECT_EQ(names.size(), 161u);
  const char* const first[] = {"conv1.weight",
                               "bn1.weight",
                               "bn1.bias",
                               "layer1.0.conv1.weight",
                               "layer1.0.bn1.weight",
                               "layer1.0.bn1.bias",
                               "layer1.0.conv2.weight",
                               "layer1.0.bn2.weight",
                               "layer1.0.bn2.bias",
                               "layer1.0.conv3.weight",
                               "layer1.0.bn3.weight",
                               "layer1.0.bn3.bias",
                               "layer1.0.downsample.0.weight"};
  for (std::size_t i = 0; i < std::size(first); ++i) EXPECT_EQ(tensors[i].name, first[i]);
  EXPECT_EQ(tensors.back().name, "fc.bias");
  EXPECT_EQ(make_model("alexnet")->tensors()[4].name, "features.6.weight");
  EXPECT_EQ(make_model("alexnet")->tensors()[10].name, "classifier.1.weight");
  EXPECT_EQ(make_model("vgg16")->tensors()[24].name, "features.28.weight");
  EXPECT_EQ(make_model("vgg16")->tensors()[30].name, "classifier.6.weight");
}

TEST(Models, BucketsAreThoseOfDdp) {
  EXPECT_THAT(mib(*make_model("alexnet")), Pointwise(DoubleNear(0.06), {15.6, 64.0, 144.0, 9.4}));
  EXPECT_THAT(mib(*make_model("vgg16")), Pointwise(DoubleNear(0.06), {15.6, 64.0, 392.0, 27.0, 27.0, 2.1}));
  EXPECT_THAT(mib(*make_model("resnet50")), Pointwise(DoubleNear(0.06), {7.8, 30.0, 25.0, 25.3, 9.3}));
}

TEST(Models, UnknownNamesAndOptionsThatDoNotFitAreRefused) {
  const auto message = [](const char* name, const ModelOptions& options = {}) {
    const auto model = make_model(name, options);
    EXPECT_FALSE(model) << name;
    if (model) return std::string();
    EXPECT_EQ(model.error().code, ErrorCode::kInvalidArgument);
    return model.error().message;
  };
  EXPECT_THAT(message("vgg19"),
              AllOf(HasSubstr("vgg19"), HasSubstr("lr, mlp-small, mlp, cnn, cnn-wide, alexnet, vgg16, resnet50, gpt")));
  EXPECT_THAT(message("mlp", {.image_size = 32}), HasSubstr("images"));
  EXPECT_THAT(message("gpt", {.classes = 10}), HasSubstr("alexnet, vgg16, resnet50"));
  EXPECT_THAT(message("alexnet", {.image_size = 32}), HasSubstr("32 x 32"));
  EXPECT_THAT(message("vgg16", {.classes = 1}), HasSubstr("2 to 1000"));
  EXPECT_THAT(message("vgg16", {.width_divisor = 3}), HasSubstr("1, 2, 4, 8, 16"));
  EXPECT_THAT(message("lr", {.width_divisor = 2}), HasSubstr("no hidden units"));
  EXPECT_THAT(message("cnn-wide", {.width_divisor = 16}), HasSubstr("8 filters"));
}

TEST(Cnn, HasTheShapeThatItsDescriptionSays) {
  const Model model = *make_model("cnn");
  EXPECT_EQ(model.shape, "28x28, conv 5x5x16, pool 2, conv 5x5x32, pool 2, 512-128-10, ReLU");
  EXPECT_THAT(model.tensor_elements(), ElementsAre(400, 16, 12800, 32, 65536, 128, 1280, 10));
  EXPECT_EQ(plan_buckets(model.tensor_elements()).buckets.size(), 1u);
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
}

TEST(GeneratedText, IsOfItsSeedAndReadable) {
  const Dataset text = generate_text(20, 3);
  EXPECT_EQ(text.size(), 20u);
  EXPECT_EQ(digest(text), digest(generate_text(20, 3)));
  EXPECT_NE(digest(text), digest(generate_text(20, 4)));
  for (std::size_t t = 0; t + 1 < kTextTokens; ++t) EXPECT_EQ(text.labels[t], text.pixels[t + 1]);
  EXPECT_THAT(text_of(text, 0) + text_of(text, 1), AllOf(HasSubstr(" the "), HasSubstr(". ")));
}

TEST(GeneratedImages, AreOfTheirSeedAndEvenlyOfAllClasses) {
  const Dataset images = generate_images(30, 16, 10, 3);
  EXPECT_EQ(images.image_elements(), 16u * 16 * 3);
  EXPECT_EQ(digest(images), digest(generate_images(30, 16, 10, 3)));
  EXPECT_NE(digest(images), digest(generate_images(30, 16, 10, 4)));
  for (std::uint16_t label = 0; label < 10; ++label) {
    EXPECT_EQ(std::count(images.labels.begin(), images.labels.end(), label), 3);
  }
}

struct SmallRun {
  const char* model;
  ModelOptions options;
  std::size_t examples;
  int epochs;
  double rate;
  double last_loss;  // of the first epoch's, at most
};

Problem small_problem(const SmallRun& run) {
  Problem problem(run.model, run.options);
  problem.dataset = problem.model.data == DataKind::kText
                        ? generate_text(run.examples, 1)
                        : generate_images(run.examples, run.options.image_size, run.options.classes, 1);
  problem.split = *split_dataset(problem.dataset, 1);
  problem.config.epochs = run.epochs;
  problem.config.batch = 16;
  problem.config.rate = run.rate;
  problem.config.weight_decay = 1e-4;
  return problem;
}

void PrintTo(const SmallRun& run, std::ostream* out) { *out << run.model; }

class SmallModels : public ::testing::TestWithParam<SmallRun> {};

TEST_P(SmallModels, LearnOnTwoRanksThatStayEqual) {
  const Problem problem = small_problem(GetParam());
  FakeWorld world(2);
  const auto ranks = problem.run_ranks(world);
  for (const RankOutcome& rank : ranks) {
    ASSERT_TRUE(rank.report) << rank.report.error().message;
    EXPECT_EQ(rank.report->failure, "");
    EXPECT_EQ(rank.report->replicas_identical, true);
    EXPECT_EQ(rank.parameters, ranks[0].parameters);
    EXPECT_LT(rank.report->epochs.back().loss, GetParam().last_loss * rank.report->epochs.front().loss);
    EXPECT_EQ(rank.report->epochs.back().held_out_loss, ranks[0].report->epochs.back().held_out_loss);
  }
}

// Each rank's batches have statistics of their own.
TEST(BatchNormOnRanks, EvaluationTakesThoseOfRankZero) {
  Problem problem = small_problem({"resnet50", {.image_size = 32, .classes = 4, .width_divisor = 16}, 60, 1, 0.01, 1});
  FakeWorld world(2);
  const auto ranks = problem.run_ranks(world);
  EXPECT_EQ(ranks[0].state.size(), 2u * 26560 / 16);  // 26,560 channels are normalised
  EXPECT_EQ(ranks[1].state, ranks[0].state);
  problem.config.no_communication = true;  // nor does training apart change that
  problem.config.check_equal = CheckEqual::kOff;
  EXPECT_NE(problem.run({}).state, ranks[0].state);
}

TEST(WeightDecay, MakesParametersSmaller) {
  Problem problem("mlp");
  problem.config.epochs = 1;
  const auto squares = [&](double decay) {
    problem.config.weight_decay = decay;
    double sum = 0;
    for (const float value : problem.run({}).parameters) sum += double{value} * double{value};
    return sum;
  };
  EXPECT_LT(squares(0.05), 0.98 * squares(0));
}

TEST_P(SmallModels, RepeatBitForBit) {
  SmallRun run = GetParam();
  run.epochs = 1;
  run.examples = 60;
  const Problem problem = small_problem(run);
  EXPECT_EQ(problem.run({}).parameters, problem.run({}).parameters);
}

INSTANTIATE_TEST_SUITE_P(
    All, SmallModels,
    ::testing::Values(SmallRun{"alexnet", {.image_size = 64, .classes = 4, .width_divisor = 16}, 200, 10, 0.02, 0.8},
                      SmallRun{"vgg16", {.image_size = 64, .classes = 4, .width_divisor = 16}, 200, 8, 0.01, 0.8},
                      SmallRun{"resnet50", {.image_size = 64, .classes = 4, .width_divisor = 16}, 400, 4, 0.02, 0.8},
                      SmallRun{"gpt", {.width_divisor = 4}, 200, 8, 0.05, 0.8}),
    [](const auto& one) { return std::string(one.param.model); });

}  // namespace
}  // namespace clustar::bench::trainer
