// Training in 16 bits: the types, the loss scale, what is rounded where, and ranks that decide alike.
#include "bench/trainer/precision/precision.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <variant>
#include <vector>

#include "bench/trainer/data/images.h"
#include "bench/trainer/data/text.h"
#include "bench/trainer/graph/graph.h"
#include "bench/trainer/graph/op.h"
#include "bench/trainer/parallel/sharded_optimizer.h"
#include "bench/trainer/precision/loss_scaler.h"
#include "bench/trainer/sgd.h"
#include "tests/half_reference.h"
#include "tests/trainer/fake_links.h"
#include "tests/trainer/on_ranks.h"
#include "tests/trainer/problem.h"
#include "transport/base/half.h"
#include "transport/base/rng.h"

namespace clustar::bench::trainer {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Every value of a type, what lies in the middle between two, and the floats beside that: both signs.
template <class Reference, class ToHalf, class FromHalf>
void expect_exact(ToHalf to_half, FromHalf from_half) {
  for (std::uint32_t word = 0; word <= 0xffff; ++word) {
    Reference half;
    half.bits = static_cast<std::uint16_t>(word);
    const double value = static_cast<double>(half);
    const float widened = from_half(half.bits);
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(widened)) << word;
      ASSERT_TRUE(std::isnan(from_half(to_half(widened)))) << word;
      continue;
    }
    ASSERT_EQ(static_cast<double>(widened), value) << word;
    ASSERT_EQ(to_half(widened), half.bits) << word;
    Reference next;
    next.bits = static_cast<std::uint16_t>(word + 1);
    if (!std::isfinite(value) || !std::isfinite(static_cast<double>(next))) continue;
    const auto middle = static_cast<float>((value + static_cast<double>(next)) / 2);
    for (const float near : {middle, std::nextafter(middle, kInfinity), std::nextafter(middle, -kInfinity)}) {
      ASSERT_EQ(to_half(near), Reference(static_cast<double>(near)).bits) << near;
    }
  }
  clustar::Rng rng(3);
  for (int i = 0; i < 300'000; ++i) {
    const auto value = std::bit_cast<float>(static_cast<std::uint32_t>(rng.next()));
    if (!std::isnan(value)) {
      ASSERT_EQ(to_half(value), Reference(static_cast<double>(value)).bits) << value;
    }
  }
}

// As the threads that train have it, too, which take denormal float32s for zero: float16's are normal float32s.
TEST(Half, Float16IsRoundedToNearestTiesToEven) {
  expect_exact<clustar::tests::Float16>(to_float16, from_float16);
  const ComputeThread flushes_denormals;
  for (std::uint16_t word = 0; word < 0x7c00; ++word) ASSERT_EQ(to_float16(from_float16(word)), word);
  EXPECT_EQ(to_float16(65519.996F), 0x7bff);
  EXPECT_EQ(to_float16(65520), 0x7c00);
  EXPECT_EQ(to_float16(std::nanf("9")), 0x7e00);
}

TEST(Half, Bfloat16IsRoundedToNearestTiesToEven) {
  expect_exact<clustar::tests::Bfloat16>(to_bfloat16, from_bfloat16);
  EXPECT_EQ(to_bfloat16(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_EQ(to_bfloat16(-std::nanf("9")), 0x7fc0);
}

TEST(Precision, ArraysAreRoundedPackedAndWidenedAlike) {
  clustar::Rng rng(5);
  std::vector<float> values(1003);
  for (float& value : values) value = static_cast<float>(100 * rng.uniform() - 50);
  for (const Precision precision : {Precision::kBfloat16, Precision::kFloat16}) {
    std::vector<std::uint16_t> packed(values.size());
    std::vector<float> widened(values.size());
    pack(precision, values, packed);
    unpack(precision, packed, widened);
    std::vector<float> rounded = values;
    round_to(precision, rounded);
    EXPECT_EQ(rounded, widened);
    EXPECT_NE(rounded, values);
    const int digits = precision == Precision::kFloat16 ? 11 : 8;
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_LE(std::abs(double{rounded[i]} - double{values[i]}), std::ldexp(std::abs(values[i]), -digits));
    }
  }
  std::vector<float> same = values;
  round_to(Precision::kFloat32, same);
  EXPECT_EQ(same, values);
}

TEST(Precision, OneValueThatIsNotFiniteIsFoundWhereverItIs) {
  for (const float wrong : {kInfinity, -kInfinity, std::nanf("")}) {
    for (std::size_t at = 0; at < 37; ++at) {
      std::vector<float> values(37, std::numeric_limits<float>::max());
      EXPECT_TRUE(all_finite(values));
      values[at] = wrong;
      EXPECT_FALSE(all_finite(values)) << at;
    }
  }
  EXPECT_TRUE(all_finite({}));
}

// torch.amp.GradScaler: growth 2 after an interval without an overflow, backoff 0.5.
TEST(Buckets, TakeTwiceAsManyElementsOfSixteenBits) {
  const std::vector<std::size_t> sizes{100, 100, 100, 100};
  const auto plan = [&](Precision precision) {
    return plan_buckets(sizes, {.first_bytes = 800, .bytes = 800, .shards = 3, .precision = precision});
  };
  EXPECT_EQ(plan(Precision::kFloat32).buckets.size(), 2u);
  const BucketPlan halves = plan(Precision::kFloat16);
  EXPECT_EQ(halves.buckets.size(), 1u);
  EXPECT_EQ(halves.bytes(halves.buckets[0]), 800u);
  EXPECT_EQ(halves.shard_elements(halves.buckets[0]) % 8, 0u) << "whole 16 bytes";
}

Problem small_problem(const std::string& model, Precision precision) {
  if (model == "gpt") {
    Problem problem("gpt", {.width_divisor = 4});
    problem.dataset = generate_text(120, 1);
    problem.config.rate = 0.05;
    problem.config.epochs = 8;
    problem.config.batch = 16;
    problem.config.precision = precision;
    problem.split = *split_dataset(problem.dataset, 1);
    problem.plan = plan_of(problem.config, problem.model, 1);
    return problem;
  }
  const bool images = model == "vgg16";
  const ModelOptions options =
      images ? ModelOptions{.image_size = 32, .classes = 4, .width_divisor = 16} : ModelOptions{};
  Problem problem(model, options);
  problem.config.epochs = 6;
  if (images) {
    problem.dataset = generate_images(60, 32, 4, 1);
    problem.split = *split_dataset(problem.dataset, 1);
    problem.config.rate = 0.01;
    problem.config.batch = 16;
  }
  problem.config.precision = precision;
  problem.plan = plan_of(problem.config, problem.model, 1);
  return problem;
}

// Of `ranks`, with the loss scale that is usual.
std::vector<RankOutcome> trained(Problem problem, int ranks = 2) {
  if (problem.config.loss_scale.scaling == LossScaling::kNone) {
    problem.config.loss_scale = usual_loss_scale(problem.config.precision);
  }
  FakeWorld world(ranks);
  return problem.run_ranks(world);
}

void expect_sound(const std::vector<RankOutcome>& ranks) {
  for (const RankOutcome& rank : ranks) {
    ASSERT_TRUE(rank.report) << rank.report.error().message;
    EXPECT_EQ(rank.report->failure, "");
    EXPECT_EQ(rank.report->replicas_identical, true);
    EXPECT_EQ(rank.parameters, ranks[0].parameters);
    EXPECT_EQ(rank.report->loss_scale, ranks[0].report->loss_scale);
    EXPECT_EQ(rank.report->overflowed_steps, ranks[0].report->overflowed_steps);
  }
}

// What a model computes of one batch: its outputs, and the gradients of its parameters by a loss times `scale`, which
// is divided out again.
struct Pass {
  std::vector<float> outputs, gradients;
};
Pass pass_of(const std::string& model, Precision precision, float scale) {
  const Problem problem = small_problem(model, precision);
  const ComputeThread settings_of_thread;
  const auto math = graph::make_cpu_math();
  constexpr std::size_t kBatch = 8;
  graph::Network network(problem.model.graph, *math, problem.plan.tensor_offset, kBatch, 1, precision);
  std::vector<float> parameters(problem.plan.capacity());
  network.initialise(parameters, 1);
  std::vector<float> x;
  std::vector<std::uint16_t> labels;
  const std::size_t of_one = problem.dataset.image_elements();
  for (std::size_t i = 0; i < kBatch * of_one; ++i) {
    x.push_back(static_cast<float>(problem.dataset.pixels[i]) * problem.dataset.scale + problem.dataset.offset);
  }
  for (std::size_t i = 0; i < kBatch * problem.model.predictions; ++i) labels.push_back(problem.dataset.labels[i]);
  const auto outputs = network.forward(parameters.data(), x.data(), kBatch);
  Pass pass{{outputs.begin(), outputs.end()}, std::vector<float>(parameters.size())};
  std::vector<float> by_outputs(outputs.size());
  softmax_cross_entropy(outputs, labels, problem.model.classes, scale / static_cast<float>(labels.size()), by_outputs);
  network.backward(parameters.data(), by_outputs, pass.gradients.data(), [&](std::size_t tensor) {
    const auto part =
        std::span(pass.gradients).subspan(problem.plan.tensor_offset[tensor], problem.plan.tensor_elements[tensor]);
    std::vector<float> rounded(part.begin(), part.end());
    round_to(precision, rounded);
    EXPECT_TRUE(std::equal(rounded.begin(), rounded.end(), part.begin())) << "tensor " << tensor << " has more bits";
  });
  for (float& gradient : pass.gradients) gradient /= scale;
  return pass;
}

double relative_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += (double{a[i]} - double{b[i]}) * (double{a[i]} - double{b[i]});
    norm += double{b[i]} * double{b[i]};
  }
  return std::sqrt(difference / norm);
}

// Where a value near zero rounds to the other side, a ReLU passes a whole gradient or none, and a pool takes that of
// another place: a part of them as large as the error of values, so that the norm differs by its root. Without either
// the error stays in proportion.
bool decides(const graph::Graph& graph) {
  return std::ranges::any_of(graph.nodes(), [](const graph::Node& node) {
    return std::holds_alternative<graph::Relu>(node.op) || std::holds_alternative<graph::MaxPool>(node.op);
  });
}

class WholeModels : public ::testing::TestWithParam<const char*> {};

TEST_P(WholeModels, ComputeInSixteenBitsWhatTheyDoInFloat32) {
  const Model model = small_problem(GetParam(), Precision::kFloat32).model;
  const Pass exact = pass_of(GetParam(), Precision::kFloat32, 1);
  for (const auto& [precision, scale, unit] : {std::tuple(Precision::kBfloat16, 1.0F, std::ldexp(1.0, -9)),
                                               std::tuple(Precision::kFloat16, 1024.0F, std::ldexp(1.0, -12))}) {
    const Pass halves = pass_of(GetParam(), precision, scale);
    std::vector<float> rounded = halves.outputs;
    round_to(precision, rounded);
    EXPECT_EQ(rounded, halves.outputs);
    const double of_outputs = relative_difference(halves.outputs, exact.outputs);
    const double of_gradients = relative_difference(halves.gradients, exact.gradients);
    EXPECT_GT(of_outputs, 0.1 * unit);
    EXPECT_LT(of_outputs, 8 * unit);
    EXPECT_GT(of_gradients, 0.1 * unit);
    EXPECT_LT(of_gradients, decides(model.graph) ? 2 * std::sqrt(of_outputs) : 4 * unit);
  }
}
INSTANTIATE_TEST_SUITE_P(Models, WholeModels, ::testing::Values("lr", "mlp", "cnn", "gpt", "vgg16"));

class Trained : public ::testing::TestWithParam<std::tuple<const char*, Precision>> {};

TEST_P(Trained, LearnAsInFloat32AndStayEqual) {
  const auto& [model, precision] = GetParam();
  const auto exact = trained(small_problem(model, Precision::kFloat32));
  const auto halves = trained(small_problem(model, precision));
  expect_sound(halves);
  const double first = halves[0].report->epochs.front().loss;
  const double last = halves[0].report->epochs.back().loss;
  EXPECT_LT(last, 0.9 * first);
  EXPECT_NEAR(last, exact[0].report->epochs.back().loss, 0.08 * first);
  EXPECT_NE(halves[0].parameters, exact[0].parameters);
}
INSTANTIATE_TEST_SUITE_P(Models, Trained,
                         ::testing::Combine(::testing::Values("mlp-small", "cnn", "gpt"),
                                            ::testing::Values(Precision::kBfloat16, Precision::kFloat16)),
                         [](const auto& one) {
                           std::string name = std::get<0>(one.param);
                           name.erase(std::remove(name.begin(), name.end(), '-'), name.end());
                           return name + "_" + to_string(std::get<1>(one.param));
                         });

TEST(TrainedHalves, SendHalfOfTheBytesInTheirType) {
  for (const auto& [precision, type] : {std::pair(Precision::kFloat32, proxy::DataType::kFloat32),
                                        std::pair(Precision::kBfloat16, proxy::DataType::kBfloat16),
                                        std::pair(Precision::kFloat16, proxy::DataType::kFloat16)}) {
    Problem problem = small_problem("lr", precision);
    problem.config.epochs = 2;
    FakeWorld world(2);
    const auto ranks = problem.run_ranks(world);
    expect_sound(ranks);
    EXPECT_THAT(world.types(), Each(type));
    EXPECT_EQ(ranks[0].report->ranks[0].traffic.bytes_sent, 14u * 7850 * element_bytes(precision));
  }
}

// From a scale that is far too large: every rank skips the first steps and goes on by the same smaller one.
TEST(DynamicScale, OverflowsAreSkippedByAllRanksAndTheScaleRecovers) {
  for (const bool sharded : {false, true}) {
    for (const bool overlap : {sharded}) {
      Problem problem = small_problem("mlp-small", Precision::kFloat16);
      problem.config.loss_scale = {.scaling = LossScaling::kDynamic, .scale = kMostLossScale, .interval = 3};
      problem.config.overlap_forward = overlap;
      problem.config.sharding = sharded ? parallel::Sharding::kZero1 : parallel::Sharding::kNone;
      problem.plan = plan_of(problem.config, problem.model, 3);
      problem.config.epochs = 8;
      const auto ranks = trained(problem, 3);
      expect_sound(ranks);
      EXPECT_GT(ranks[0].report->overflowed_steps, 2u);
      EXPECT_LT(ranks[0].report->overflowed_steps, 28u);
      EXPECT_LT(ranks[0].report->loss_scale, kMostLossScale / 2);
      EXPECT_EQ(ranks[0].report->steps, 56u);
      EXPECT_LT(ranks[0].report->epochs.back().loss, 0.8 * ranks[0].report->epochs.front().loss);
    }
  }
}

// A scale that is a power of two changes no bit of what it does not keep from becoming too small.
TEST(DynamicScale, ChangesNothingWhereNothingIsTooSmall) {
  Problem problem = small_problem("mlp-small", Precision::kBfloat16);
  problem.config.epochs = 2;
  const auto plain = trained(problem);
  problem.config.loss_scale = {.scaling = LossScaling::kDynamic, .scale = 256, .interval = 2};
  for (const bool overlap : {false, true}) {
    problem.config.overlap_forward = overlap;
    const auto scaled = trained(problem);
    expect_sound(scaled);
    EXPECT_EQ(scaled[0].parameters, plain[0].parameters);
    EXPECT_EQ(scaled[0].report->loss_scale, 256 * 128) << "14 steps";
  }
}

TEST(DynamicScale, GradientsThatAreNeverFiniteEndTheRun) {
  Problem problem = small_problem("mlp-small", Precision::kFloat16);
  problem.config.rate = 1000;
  problem.config.batch = 8;  // so many steps that it ends before the epoch, whose loss is not finite either
  problem.config.loss_scale = {.scaling = LossScaling::kDynamic, .scale = 1, .interval = 2000};
  for (const RankOutcome& rank : trained(problem)) {
    ASSERT_TRUE(rank.report);
    EXPECT_THAT(rank.report->failure, HasSubstr("whatever the loss scale"));
  }
}

TEST(DynamicScale, ARunWithoutAStepThatCountsFails) {
  Problem problem = small_problem("mlp-small", Precision::kFloat16);
  problem.config.epochs = 1;
  problem.config.target_accuracy = 0.01;
  problem.config.loss_scale = {.scaling = LossScaling::kStatic, .scale = kMostLossScale};
  for (const RankOutcome& rank : trained(problem)) {
    ASSERT_TRUE(rank.report);
    EXPECT_EQ(rank.report->overflowed_steps, rank.report->steps);
    EXPECT_THAT(rank.report->failure, HasSubstr("none of 7 steps counted"));
  }
}

// What one rank has in one bucket, of several that all ranks sum.
struct OneStep {
  BucketPlan plan;
  std::vector<float> parameters, gradients;
  float scale = 0;
  std::uint64_t skipped = 0;
};

// One step of three ranks, in which `wrong` is in rank 1's gradient of tensor 0, the last bucket's.
std::vector<OneStep> step_with(float wrong, bool sharded) {
  constexpr int kRanks = 3;
  std::vector<OneStep> outcomes(kRanks);
  FakeWorld world(kRanks);
  const std::vector<std::size_t> sizes{40, 50, 60};
  const auto errors = tests::on_ranks(kRanks, [&](int rank) -> Result<void> {
    OneStep& one = outcomes[static_cast<std::size_t>(rank)];
    one.plan = plan_buckets(
        sizes, {.first_bytes = 1, .bytes = 1, .shards = sharded ? 3u : 1u, .precision = Precision::kFloat16});
    one.parameters.assign(one.plan.capacity(), 1);
    one.gradients.assign(one.plan.capacity(), 8);
    if (rank == 1) one.gradients[one.plan.tensor_offset[0] + 39] = wrong;
    const auto collective = world.collective(rank);
    const auto bootstrap = world.bootstrap(rank);
    GradientReducer reducer(one.plan, one.gradients, collective.get(), {}, {}, {},
                            sharded ? Reduction::kShard : Reduction::kWhole);
    LossScaler scaler({.scaling = LossScaling::kDynamic, .scale = 16, .interval = 10});
    const SgdOptions sgd{.rate = 0.5F};
    std::unique_ptr<parallel::Optimizer> optimizer;
    if (sharded) {
      optimizer = std::make_unique<parallel::ShardedOptimizer>(reducer, one.parameters, one.gradients, sgd, scaler,
                                                               *bootstrap, false);
    } else {
      optimizer = std::make_unique<parallel::WholeOptimizer>(reducer, one.parameters, one.gradients, sgd, scaler);
    }
    for (std::size_t tensor = sizes.size(); tensor-- > 0;) reducer.tensor_ready(tensor);
    if (const auto ok = optimizer->finish(); !ok) return tl::unexpected(ok.error());
    one.scale = scaler.scale();
    one.skipped = scaler.skipped_steps();
    return {};
  });
  EXPECT_THAT(errors, Each(std::string()));
  return outcomes;
}

TEST(DynamicScale, AnOverflowOfOneRankIsSkippedByAll) {
  for (const bool sharded : {false, true}) {
    for (const float wrong : {kInfinity, -kInfinity, std::nanf(""), 1e6F}) {  // the last becomes infinite on its way
      for (const OneStep& rank : step_with(wrong, sharded)) {
        EXPECT_THAT(rank.parameters, Each(1.0F));
        EXPECT_EQ(rank.scale, 8);
        EXPECT_EQ(rank.skipped, 1u);
      }
    }
    for (const OneStep& rank : step_with(8, sharded)) {
      EXPECT_THAT(parallel::in_parameter_order(rank.parameters, rank.plan), Each(1 - 0.5F * 24 / 16));
      EXPECT_EQ(rank.scale, 16);
      EXPECT_EQ(rank.skipped, 0u);
    }
  }
}

TEST(TrainedHalves, MicroBatchesAndShardsAgreeWithWholeSteps) {
  for (const Precision precision : {Precision::kBfloat16, Precision::kFloat16}) {
    Problem problem = small_problem("mlp-small", precision);
    problem.config.epochs = 1;
    const auto whole = trained(problem);
    problem.config.accumulate = 3;
    const auto parts = trained(problem);
    expect_sound(parts);
    EXPECT_NEAR(parts[0].report->epochs[0].loss, whole[0].report->epochs[0].loss, 0.02);
    problem.config.accumulate = 1;
    problem.config.sharding = parallel::Sharding::kZero1;
    problem.plan = plan_of(problem.config, problem.model, 2);
    const auto shards = trained(problem);
    expect_sound(shards);
    EXPECT_EQ(shards[0].ordered, whole[0].ordered) << "two ranks add in one order only";
  }
}

// A contribution that is lost is zero, whatever the type; the others are as they were.
TEST(TrainedHalves, LostContributionsAreZeroOrMadeUpFor) {
  for (const proxy::Missing missing : {proxy::Missing::kZero, proxy::Missing::kRescale}) {
    for (const Precision precision : {Precision::kBfloat16, Precision::kFloat16}) {
      Problem problem = small_problem("lr", precision);
      problem.config.exchange = {AllReduce::kAllToAll, missing};
      problem.config.loss_scale = usual_loss_scale(precision);
      FakeWorld world(3);
      world.loses = [](std::uint64_t number, int from, int, std::size_t i) {
        return from == static_cast<int>(number % 3) && i % 8 == 1;
      };
      const auto ranks = problem.run_ranks(world);
      expect_sound(ranks);
      EXPECT_GT(ranks[0].report->ranks[0].missing_contributions, 0u);
      EXPECT_LT(ranks[0].report->epochs.back().loss, 0.9 * ranks[0].report->epochs.front().loss);
    }
  }
}

}  // namespace
}  // namespace clustar::bench::trainer
