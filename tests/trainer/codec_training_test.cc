// Training with gradient codecs over a fake transport.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <thread>

#include "bench/trainer/data/digits.h"
#include "bench/trainer/trainer.h"
#include "tests/trainer/fake_links.h"
#include "tests/trainer/problem.h"

namespace clustar::bench::trainer {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

struct CodecProblem : Problem {
  explicit CodecProblem(const CodecOptions& codec) : Problem("lr") {
    plan = plan_buckets(model.tensor_elements(), 8, 8);  // the biases travel apart from the weights
    config.codec = codec;
    config.epochs = 6;
    config.rate = 0.02;
  }
};

struct NamedCodec {
  const char* name;
  CodecOptions options;
  std::size_t bytes_per_step;  // that a rank of three sends
};

class CodecTraining : public ::testing::TestWithParam<NamedCodec> {};

// 7,840 weights in 784 columns, and 10 biases. The fake all-reduce counts the buffer once.
TEST_P(CodecTraining, ReplicasAreEqualAtEveryStepAndLearn) {
  const CodecProblem problem(GetParam().options);
  FakeWorld world(3);
  const std::vector<RankOutcome> outcomes = problem.run_ranks(world);
  for (const RankOutcome& rank : outcomes) {
    ASSERT_TRUE(rank.report) << rank.report.error().message;
    EXPECT_EQ(rank.report->failure, "");
    EXPECT_EQ(rank.report->replicas_identical, true);
    EXPECT_EQ(rank.parameters, outcomes[0].parameters);
    EXPECT_LT(rank.report->epochs.back().loss, 0.7 * rank.report->epochs.front().loss);
    EXPECT_EQ(rank.report->ranks[0].traffic.bytes_sent, rank.report->steps * GetParam().bytes_per_step);
    EXPECT_GT(rank.report->ranks[0].codec_s, 0);
  }
}

TEST_P(CodecTraining, RepeatsBitForBit) {
  const CodecProblem problem(GetParam().options);
  FakeWorld first(2);
  FakeWorld second(2);
  EXPECT_EQ(problem.run_ranks(first)[0].parameters, problem.run_ranks(second)[1].parameters);
}

TEST_P(CodecTraining, OneRankEncodesToo) {
  const CodecProblem problem(GetParam().options);
  const RankOutcome with = problem.run({});
  ASSERT_TRUE(with.report);
  EXPECT_GT(with.report->ranks[0].codec_s, 0);
  EXPECT_NE(with.parameters, CodecProblem({}).run({}).parameters);
}

// Whichever way its gradient is lost, no rank waits for another forever, and none goes on with other parameters.
TEST_P(CodecTraining, DivergenceIsAnErrorOnEveryRank) {
  CodecProblem problem(GetParam().options);
  problem.config.rate = 3e38;  // weights, then outputs that no float32 holds
  FakeWorld world(3);
  for (const RankOutcome& rank : problem.run_ranks(world)) {
    ASSERT_FALSE(rank.report);
    EXPECT_THAT(rank.report.error().message, AllOf(HasSubstr("of gradient bucket "), HasSubstr(" of 2 ("),
                                                   HasSubstr("diverged; try a smaller rate")));
  }
}

constexpr std::size_t kReduceBytes = 4 * 7850;
INSTANTIATE_TEST_SUITE_P(
    Codecs, CodecTraining,
    ::testing::Values(NamedCodec{"onebit", {.codec = Codec::kOneBit}, 2 * (784 * 8 + 7840 / 8 + 8 + 2)},
                      NamedCodec{"onebit_reduce", {.codec = Codec::kOneBit, .path = CodecPath::kReduce}, kReduceBytes},
                      NamedCodec{"topk", {.codec = Codec::kTopK}, 2 * 8 * (79 + 1)},
                      NamedCodec{"topk_reduce", {.codec = Codec::kTopK, .path = CodecPath::kReduce}, kReduceBytes}),
    [](const auto& codec) { return std::string(codec.param.name); });

// With everything sent, a codec changes nothing but the way.
TEST(TopKOfEverything, EqualsNoCodec) {
  FakeWorld plain(3);
  FakeWorld gathered(3);
  FakeWorld reduced(3);
  const auto without = CodecProblem({}).run_ranks(plain)[0].parameters;
  EXPECT_EQ(CodecProblem({.codec = Codec::kTopK, .topk_fraction = 1}).run_ranks(gathered)[0].parameters, without);
  EXPECT_EQ(CodecProblem({.codec = Codec::kTopK, .path = CodecPath::kReduce, .topk_fraction = 1})
                .run_ranks(reduced)[0]
                .parameters,
            without);
}

// One rank's infinity: the others hear of it in the same step, over the transport alone.
TEST(GradientReducer, ADivergedRankIsNamedByTheOthers) {
  const std::vector<std::size_t> sizes{4};
  const BucketPlan plan = plan_buckets(sizes);
  for (const CodecPath path : {CodecPath::kGather, CodecPath::kReduce}) {
    FakeWorld world(2);
    std::vector<std::vector<float>> gradients{{1, 2, 3, 4}, {1, 2, std::numeric_limits<float>::infinity(), 4}};
    std::vector<Result<StepCommunication>> outcomes(2, StepCommunication{});
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 2; ++rank) {
      threads.emplace_back([&, rank] {
        const auto collective = world.collective(rank);
        const auto at = static_cast<std::size_t>(rank);
        const std::vector<graph::TensorSpec> tensors{{"weight", 4, 1}};
        GradientReducer reducer(plan, gradients[at], collective.get(), {.codec = Codec::kOneBit, .path = path},
                                tensors);
        reducer.tensor_ready(0);
        outcomes[at] = reducer.finish();
      });
    }
    for (std::thread& thread : threads) thread.join();
    ASSERT_FALSE(outcomes[0]);
    ASSERT_FALSE(outcomes[1]);
    EXPECT_THAT(outcomes[0].error().message, HasSubstr(path == CodecPath::kGather ? "from rank 1" : "the sum over"));
    EXPECT_THAT(outcomes[1].error().message, AllOf(HasSubstr("onebit of gradient bucket 1 of 1 (16 bytes) failed"),
                                                   HasSubstr("element 2 of 4 is inf")));
  }
}

TEST(CodecResults, NameTheCodec) {
  const CodecProblem problem({.codec = Codec::kTopK, .topk_fraction = 0.02});
  FakeWorld world(2);
  const auto outcomes = problem.run_ranks(world);
  const nlohmann::json results =
      to_results(problem.config, problem.model, problem.plan, RunInfo{}, *outcomes[0].report);
  EXPECT_EQ(results.at("config").at("codec"),
            nlohmann::json({{"name", "topk"}, {"path", "gather"}, {"topk_fraction", 0.02}}));
  EXPECT_GT(results.at("codec_s"), 0.0);
  EXPECT_THAT(summary(results), HasSubstr("topk 2 %, blobs by all-gather"));
}

}  // namespace
}  // namespace clustar::bench::trainer
