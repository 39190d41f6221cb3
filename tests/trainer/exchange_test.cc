// Training by all-to-all all-reduces over a fake transport that loses what it is told to lose.
#include "bench/trainer/exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "bench/trainer/reducer.h"
#include "tests/trainer/fake_links.h"
#include "tests/trainer/problem.h"

namespace clustar::bench::trainer {
namespace {

using proxy::Missing;
using ::testing::HasSubstr;

constexpr ExchangeOptions all_to_all(Missing missing) { return {AllReduce::kAllToAll, missing}; }

// About one element in `period`, another one in each step, for each pair of ranks.
std::function<bool(std::uint64_t, int, int, std::size_t)> loses_one_in(std::uint64_t period) {
  return [period](std::uint64_t number, int from, int to, std::size_t i) {
    std::uint64_t x =
        (number << 32) ^ (static_cast<std::uint64_t>(from) << 24) ^ (static_cast<std::uint64_t>(to) << 16) ^ i;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return (x ^ (x >> 31)) % period == 0;
  };
}

class AllToAll : public ::testing::TestWithParam<int> {};

TEST_P(AllToAll, EqualsOneProcessOnTheJointBatch) {
  Problem problem("mlp");
  const RankOutcome alone = problem.run({});
  problem.config.exchange = all_to_all(Missing::kRescale);
  FakeWorld world(GetParam());
  const auto together = problem.run_ranks(world);
  for (const RankOutcome& rank : together) {
    ASSERT_TRUE(rank.report) << rank.report.error().message;
    EXPECT_EQ(rank.parameters, together[0].parameters);
    EXPECT_EQ(rank.report->replicas_identical, true);
    double largest = 0;
    for (std::size_t i = 0; i < rank.parameters.size(); ++i) {
      largest = std::max(largest, std::abs(double{rank.parameters[i]} - double{alone.parameters[i]}));
    }
    EXPECT_LT(largest, 1e-4);
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, AllToAll, ::testing::Values(2, 3, 8));

TEST(Exchange, ReplicasStayEqualAtEveryStepWhateverIsLost) {
  for (const Missing missing : {Missing::kZero, Missing::kRescale, Missing::kResidual}) {
    Problem problem("lr");
    problem.config.exchange = all_to_all(missing);
    FakeWorld world(3);
    world.loses = loses_one_in(20);
    const auto outcomes = problem.run_ranks(world);
    std::uint64_t expected = 0;
    std::uint64_t lost = 0;
    for (const RankOutcome& rank : outcomes) {
      ASSERT_TRUE(rank.report) << rank.report.error().message;
      EXPECT_EQ(rank.report->failure, "");
      EXPECT_EQ(rank.report->replicas_identical, true);
      EXPECT_EQ(rank.parameters, outcomes[0].parameters);
    }
    for (const RankTotals& totals : outcomes[0].report->ranks) {
      expected += totals.expected_contributions;
      lost += totals.missing_contributions;
    }
    EXPECT_EQ(expected, 14u * problem.plan.elements * 2);
    EXPECT_NEAR(static_cast<double>(lost), static_cast<double>(expected) / 20, static_cast<double>(expected) / 100);
    const auto results = to_results(problem.config, problem.model, problem.plan, RunInfo{}, *outcomes[0].report);
    EXPECT_EQ(results.at("all_reduce"), "all-to-all");
    EXPECT_EQ(results.at("missing_policy"), to_string(missing));
    EXPECT_EQ(results.at("missing_contributions"), lost);
    EXPECT_EQ(results.at("expected_contributions"), expected);
    EXPECT_THAT(summary(results), HasSubstr("contributions missing"));
  }
}

// One bucket of eight elements on two ranks: block 0 is 0 to 3.
struct Pair {
  static constexpr std::size_t kElements = 8;
  BucketPlan plan = plan_buckets(std::array<std::size_t, 1>{kElements});
  FakeWorld world{2};

  // What each rank gives to and has after each of `steps` steps, rank by rank.
  std::vector<std::vector<std::vector<float>>> reduce(const ExchangeOptions& exchange, int steps,
                                                      const std::vector<std::vector<float>>& gradients) {
    std::vector<std::vector<std::vector<float>>> sums(2);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 2; ++rank) {
      threads.emplace_back([&, rank] {
        const auto r = static_cast<std::size_t>(rank);
        const auto collective = world.collective(rank, exchange);
        std::vector<float> buffer(kElements);
        GradientReducer reducer(plan, buffer, collective.get());
        for (int step = 0; step < steps; ++step) {
          buffer = gradients[r];
          reducer.tensor_ready(0);
          const auto done = reducer.finish();
          ASSERT_TRUE(done) << done.error().message;
          sums[r].push_back(buffer);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    return sums;
  }
};

const std::vector<std::vector<float>> kGradients{{1, 2, 3, 4, 5, 6, 7, 8}, {10, 20, 30, 40, 50, 60, 70, 80}};

TEST(Exchange, ScalesWhatIsMissingAndNothingElse) {
  const auto sums_by = [](Missing missing) {
    Pair pair;
    pair.world.loses = [](std::uint64_t, int from, int, std::size_t i) {
      return (from == 1 && i == 2) || (from == 0 && i == 5);
    };
    const auto sums = pair.reduce(all_to_all(missing), 1, kGradients);
    EXPECT_EQ(sums[0], sums[1]);
    return sums[0][0];
  };
  EXPECT_EQ(sums_by(Missing::kRescale), (std::vector<float>{11, 22, 6, 44, 55, 120, 77, 88}));
  EXPECT_EQ(sums_by(Missing::kZero), (std::vector<float>{11, 22, 3, 44, 55, 60, 77, 88}));
}

// Of rank 1, element 2 was lost, of rank 0 element 5.
TEST(Exchange, TheNormOfWhatWasLostIsThatOfTheLostElements) {
  Pair pair;
  pair.world.loses = [](std::uint64_t, int from, int, std::size_t i) {
    return (from == 1 && i == 2) || (from == 0 && i == 5);
  };
  std::vector<StepCommunication> steps(2);
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < 2; ++r) {
    threads.emplace_back([&, r] {
      const auto collective = pair.world.collective(static_cast<int>(r), all_to_all(Missing::kResidual));
      std::vector<float> buffer = kGradients[r];
      GradientReducer reducer(pair.plan, buffer, collective.get());
      reducer.tensor_ready(0);
      const auto done = reducer.finish();
      ASSERT_TRUE(done) << done.error().message;
      steps[r] = *done;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_DOUBLE_EQ(steps[0].given_squares, 204);
  EXPECT_DOUBLE_EQ(steps[0].lost_squares, 36);
  EXPECT_DOUBLE_EQ(steps[1].given_squares, 20400);
  EXPECT_DOUBLE_EQ(steps[1].lost_squares, 900);
}

// What arrived and what waits for the next step are together what was given, of every element and after every step.
TEST(Exchange, AResidualIsLateAndNotLost) {
  Pair pair;
  constexpr int kSteps = 6;
  pair.world.loses = [](std::uint64_t number, int from, int, std::size_t i) {
    return number < kSteps - 1 && (number + static_cast<std::uint64_t>(from) + i) % 3 == 0;
  };
  const auto sums = pair.reduce(all_to_all(Missing::kResidual), kSteps, kGradients);
  EXPECT_EQ(sums[0], sums[1]);
  for (std::size_t i = 0; i < Pair::kElements; ++i) {
    float given = 0;
    float arrived = 0;
    float waits = 0;  // of the rank that sends element i
    const std::size_t from = i < 4 ? 1 : 0;
    for (std::size_t step = 0; step < kSteps; ++step) {
      given += kGradients[0][i] + kGradients[1][i];
      arrived += sums[0][step][i];
      const bool lost = pair.world.loses(step, static_cast<int>(from), 0, i);
      waits = lost ? waits + kGradients[from][i] : 0;
      EXPECT_EQ(arrived + waits, given) << "element " << i << ", step " << step;
    }
    EXPECT_EQ(waits, 0);
  }
}

TEST(Exchange, BringsLateWhatACodecSent) {
  Problem problem("lr");
  problem.config.exchange = all_to_all(Missing::kResidual);
  problem.config.codec = {.codec = Codec::kTopK, .path = CodecPath::kReduce, .topk_fraction = 0.1};
  FakeWorld world(2);
  world.loses = loses_one_in(10);
  const auto outcomes = problem.run_ranks(world);
  for (const RankOutcome& rank : outcomes) {
    ASSERT_TRUE(rank.report) << rank.report.error().message;
    EXPECT_EQ(rank.report->failure, "");
    EXPECT_EQ(rank.parameters, outcomes[0].parameters);
    EXPECT_LT(rank.report->epochs[1].loss, rank.report->epochs[0].loss);
  }
}

}  // namespace
}  // namespace clustar::bench::trainer
