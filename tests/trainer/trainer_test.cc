// Whole training runs over a fake transport: correctness of data parallelism, its checks and its measurements.
#include "bench/trainer/trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <nlohmann/json.hpp>
#include <thread>

#include "bench/trainer/data/digits.h"
#include "bench/trainer/record.h"
#include "tests/trainer/fake_links.h"
#include "tests/trainer/problem.h"

namespace clustar::bench::trainer {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(double{a[i]} - double{b[i]}));
  return largest;
}

class ManyRanks : public ::testing::TestWithParam<std::tuple<const char*, int>> {};

// 3 does not divide the batch of 50, and neither do 3 and 8 divide the last one of 20.
TEST_P(ManyRanks, EqualOneProcessOnTheJointBatch) {
  const char* name = std::get<0>(GetParam());
  const int ranks = std::get<1>(GetParam());
  const Problem problem(name);
  const RankOutcome alone = problem.run({});
  ASSERT_TRUE(alone.report) << alone.report.error().message;
  FakeWorld world(ranks);
  const std::vector<RankOutcome> together = problem.run_ranks(world);
  const std::vector<float> start = [&] {
    Problem untrained(name);
    untrained.config.epochs = 0;
    return untrained.run({}).parameters;
  }();
  ASSERT_GT(largest_difference(start, alone.parameters), 0.05);  // it did learn something
  for (const RankOutcome& rank : together) {
    ASSERT_TRUE(rank.report) << rank.report.error().message;
    EXPECT_EQ(rank.parameters, together[0].parameters);
    EXPECT_LT(largest_difference(rank.parameters, alone.parameters), 1e-4);
    EXPECT_EQ(rank.report->replicas_identical, true);
    EXPECT_EQ(rank.report->images, 640u);
    EXPECT_EQ(rank.report->steps, 14u);
    EXPECT_NEAR(rank.report->epochs.back().loss, alone.report->epochs.back().loss, 1e-3);
    EXPECT_EQ(rank.report->epochs.back().accuracy, together[0].report->epochs.back().accuracy);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ManyRanks,
                         ::testing::Combine(::testing::Values("lr", "mlp", "cnn"), ::testing::Values(2, 3, 8)));

TEST(Trainer, RepeatsBitForBit) {
  for (const char* name : {"mlp", "cnn"}) {
    const Problem problem(name);
    EXPECT_EQ(problem.run({}).parameters, problem.run({}).parameters) << name;
  }
}

class EveryModel : public ::testing::TestWithParam<const char*> {};

TEST_P(EveryModel, Learns) {
  Problem problem(GetParam());
  problem.dataset = generate_digits(1500, 1);
  problem.split = *split_dataset(problem.dataset, 1);
  problem.config.epochs = 5;
  const RankOutcome outcome = problem.run({});
  EXPECT_GT(outcome.report->epochs.back().accuracy, 0.7);
  EXPECT_LT(outcome.report->epochs.back().loss, outcome.report->epochs.front().loss / 2);
}

INSTANTIATE_TEST_SUITE_P(Models, EveryModel, ::testing::Values("mlp", "cnn", "cnn-wide"));

TEST(Trainer, ReducesWholeBucketsInOrder) {
  Problem problem("mlp");
  problem.config.epochs = 1;
  FakeWorld world(2);
  problem.run_ranks(world);
  const std::vector<std::size_t> reduced = world.reduced();
  ASSERT_EQ(reduced.size(), 2u * 7);
  for (std::size_t i = 0; i < reduced.size(); i += 2) {
    EXPECT_EQ(reduced[i], problem.plan.buckets[0].elements);
    EXPECT_EQ(reduced[i + 1], problem.plan.buckets[1].elements);
  }
}

// Every layer has a bucket of its own, so that forward waits in the middle.
Problem many_buckets() {
  Problem problem("cnn");
  problem.config.first_bucket_bytes = problem.config.bucket_bytes = 1;
  problem.plan = plan_buckets(problem.model.tensor_elements(), 1, 1);
  return problem;
}

TEST(Trainer, ForwardThatOverlapsComputesTheSameBits) {
  Problem problem = many_buckets();
  FakeWorld plain(3);
  const auto expected = problem.run_ranks(plain);
  problem.config.overlap_forward = true;
  const RankOutcome alone = problem.run({});
  ASSERT_TRUE(alone.report);
  EXPECT_EQ(alone.report->steps, 14u);
  for (const std::size_t front : {0u, 2u}) {
    problem.config.front_buckets = front;
    FakeWorld world(3);
    FakeWorld front_world(3);
    for (const RankOutcome& rank : problem.run_ranks(world, front > 0 ? &front_world : nullptr)) {
      ASSERT_TRUE(rank.report) << rank.report.error().message;
      EXPECT_EQ(rank.report->failure, "");
      EXPECT_EQ(rank.report->replicas_identical, true);
      EXPECT_EQ(rank.report->steps, 14u);
      EXPECT_EQ(rank.report->step_seconds.size(), 14u);
      EXPECT_EQ(rank.parameters, expected[0].parameters);
    }
    EXPECT_EQ(front_world.reduced().size(), 14 * front);
    EXPECT_EQ(world.reduced().size(), 14 * (problem.plan.buckets.size() - front));
  }
}

TEST(Trainer, ForwardThatOverlapsStillFindsADifferenceAndAFailedTransfer) {
  Problem problem = many_buckets();
  problem.config.overlap_forward = true;
  problem.config.front_buckets = 1;
  {
    FakeWorld world(3);
    FakeWorld front(3);
    front.after_reduce = [](std::uint64_t number, const std::vector<float*>& buffers, std::size_t) {
      if (number == 9) buffers[2][0] += 1e-3f;
    };
    for (const RankOutcome& rank : problem.run_ranks(world, &front)) {
      ASSERT_TRUE(rank.report);
      EXPECT_THAT(rank.report->failure, AllOf(HasSubstr("after step 10"), HasSubstr("rank 2 (")));
    }
  }
  FakeWorld world(2);
  FakeWorld front(2);
  front.fail_from = 5;
  for (const RankOutcome& rank : problem.run_ranks(world, &front)) {
    ASSERT_FALSE(rank.report);
    EXPECT_THAT(rank.report.error().message, AllOf(HasSubstr("bucket 8 of 8"), HasSubstr("told to fail")));
  }
}

TEST(Trainer, ASmallDifferenceOnOneRankIsFoundAndNamed) {
  Problem problem("lr");
  FakeWorld world(3);
  world.after_reduce = [](std::uint64_t number, const std::vector<float*>& buffers, std::size_t) {
    if (number == 9) buffers[2][0] += 1e-3f;
  };
  for (const RankOutcome& rank : problem.run_ranks(world)) {
    ASSERT_TRUE(rank.report);
    EXPECT_EQ(rank.report->replicas_identical, false);
    EXPECT_THAT(rank.report->failure, AllOf(HasSubstr("after step 10"), HasSubstr("rank 2 (")));
    EXPECT_LE(rank.report->steps, 16u);
  }
}

TEST(Trainer, TheCheckCanBeLimitedToEpochsOrOff) {
  Problem problem("lr");
  const auto damage = [](std::uint64_t number, const std::vector<float*>& buffers, std::size_t) {
    if (number == 1) buffers[1][0] += 1;
  };
  FakeWorld by_epoch(2);
  by_epoch.after_reduce = damage;
  problem.config.check_equal = CheckEqual::kEpoch;
  EXPECT_THAT(problem.run_ranks(by_epoch)[0].report->failure, HasSubstr("after step 7"));
  FakeWorld off(2);
  off.after_reduce = damage;
  problem.config.check_equal = CheckEqual::kOff;
  const auto outcomes = problem.run_ranks(off);
  EXPECT_EQ(outcomes[0].report->failure, "");
  EXPECT_EQ(outcomes[0].report->replicas_identical, std::nullopt);
}

TEST(Trainer, AFailedTransferIsAnErrorThatNamesTheBucket) {
  Problem problem("mlp");
  FakeWorld world(2);
  world.fail_from = 5;
  for (const RankOutcome& rank : problem.run_ranks(world)) {
    ASSERT_FALSE(rank.report);
    EXPECT_THAT(rank.report.error().message, AllOf(HasSubstr("bucket 2 of 2"), HasSubstr("told to fail")));
  }
}

TEST(Trainer, StopsAtTheTarget) {
  Problem problem("lr");
  problem.config.epochs = 50;
  problem.config.target_accuracy = 0.3;
  FakeWorld world(2);
  const auto outcomes = problem.run_ranks(world);
  EXPECT_TRUE(outcomes[0].report->target_reached);
  EXPECT_LT(outcomes[0].report->epochs.size(), 50u);
  EXPECT_GE(outcomes[0].report->epochs.back().accuracy, 0.3);
}

TEST(Trainer, DivergenceIsAFailure) {
  Problem problem("mlp");
  problem.config.rate = 1000;
  problem.config.epochs = 2;
  EXPECT_THAT(problem.run({}).report->failure, HasSubstr("diverged"));
}

// A plugin that loses 60 bytes of 1,000 with each look at its totals.
int lose_more(clustarTotals_v1* out) {
  static std::atomic<std::uint64_t> looks{0};
  const std::uint64_t n = looks.fetch_add(1);
  *out = {};
  out->size = sizeof *out;
  out->missing_bytes = 60 * n;
  out->eligible_bytes = 1000 * n;
  return CLUSTAR_OK;
}

TEST(Trainer, MoreMissingThanAllowedFailsTheRun) {
  Problem problem("lr");
  clustarApi_v1_t api{};
  api.getTotals = lose_more;
  api.getReason = [](std::uint32_t, const char**, std::uint64_t*) { return CLUSTAR_ENOTFOUND; };
  for (const std::uint32_t bound : {60'000u, 50'000u}) {
    problem.config.loss_bound_ppm = bound;
    FakeWorld world(1);
    const auto collective = world.collective(0);
    const auto bootstrap = world.bootstrap(0);
    const LossMeter meter(&api);
    const RankOutcome outcome = problem.run({collective.get(), bootstrap.get(), &meter});
    ASSERT_TRUE(outcome.report);
    EXPECT_EQ(outcome.report->ranks[0].loss.missing_bytes, 60u);
    EXPECT_EQ(outcome.report->failure.empty(), bound == 60'000u) << outcome.report->failure;
  }
}

TEST(Trainer, MeasurementsAddUp) {
  Problem problem("mlp");
  FakeWorld world(2);
  const auto outcomes = problem.run_ranks(world);
  const TrainReport& report = *outcomes[1].report;
  ASSERT_EQ(report.ranks.size(), 2u);
  for (const RankTotals& rank : report.ranks) {
    EXPECT_GT(rank.compute_s, 0);
    EXPECT_GE(rank.exposed_comm_s, 0);
    EXPECT_NEAR(rank.train_s, rank.compute_s + rank.exposed_comm_s, 1e-9);
    EXPECT_EQ(rank.traffic.bytes_sent, 14u * 2678824);
    EXPECT_EQ(rank.traffic.messages_sent, 28u);
  }
}

TEST(Trainer, ReportsProgress) {
  Problem problem("lr");
  std::vector<Progress> seen;
  problem.run({}, [&](const Progress& progress) { seen.push_back(progress); });
  ASSERT_EQ(seen.size(), 2u * (7 + 1));
  EXPECT_EQ(seen[6].step, 7u);
  EXPECT_EQ(seen[6].steps, 7u);
  EXPECT_TRUE(seen[7].epoch_over);
  EXPECT_EQ(seen[15].epoch, 2);
}

TEST(Results, HaveTheKeysThatToolsRead) {
  Problem problem("mlp");
  FakeWorld world(2);
  const auto outcomes = problem.run_ranks(world);
  const nlohmann::json results =
      to_results(problem.config, problem.model, problem.plan, RunInfo{}, *outcomes[0].report);
  for (const char* key : {"accuracy", "loss", "images_per_second", "exposed_comm_s", "hidden_comm_s", "compute_s"}) {
    EXPECT_TRUE(results.at(key).is_number()) << key;
  }
  EXPECT_EQ(results.at("bytes_sent"), 2u * 14 * 2678824);
  EXPECT_EQ(results.at("replicas_identical"), true);
  // The fake communicator has no plugin that could tell.
  EXPECT_TRUE(results.at("missing_bytes").is_null());
  EXPECT_TRUE(results.at("eligible_bytes").is_null());
  const nlohmann::json alone =
      to_results(problem.config, problem.model, problem.plan, RunInfo{}, *problem.run({}).report);
  EXPECT_EQ(alone.at("missing_bytes"), 0);
  EXPECT_EQ(alone.at("eligible_bytes"), 0);
  EXPECT_EQ(results.at("parameters"), 669706);
  EXPECT_EQ(results.at("gradient_bytes"), 2678824);
  EXPECT_EQ(results.at("buckets").size(), 2u);
  for (const char* key : {"loss", "accuracy", "train_s", "held_out_loss"}) {
    EXPECT_EQ(results.at("per_epoch").at(key).size(), 2u) << key;
  }
  EXPECT_EQ(results.at("step_seconds").size(), 14u);
  const auto& timeline = results.at("timeline");
  ASSERT_EQ(timeline.size(), 3u);
  double before = 0;
  for (const auto& step : timeline) {
    EXPECT_LE(before, step.at("begin_s"));
    EXPECT_LT(step.at("begin_s"), step.at("backward_s"));
    EXPECT_LT(step.at("backward_s"), step.at("backward_end_s"));
    EXPECT_LE(step.at("backward_end_s"), step.at("end_s"));
    EXPECT_EQ(step.at("buckets_s").size(), results.at("buckets").size());
    for (const auto& bucket : step.at("buckets_s")) EXPECT_LE(bucket.at(0), bucket.at(1));
    before = step.at("end_s");
  }
  const nlohmann::json& accuracy = results.at("accuracy_curve");
  ASSERT_EQ(accuracy.size(), 2u);
  EXPECT_EQ(accuracy[0][0], 7);
  EXPECT_EQ(accuracy[1][0], 14);
  EXPECT_GT(accuracy[1][1], accuracy[0][1]);
  EXPECT_EQ(accuracy[1][2], results.at("accuracy"));
  EXPECT_EQ(results.at("all_reduce"), "ring");
  EXPECT_TRUE(results.at("missing_contributions").is_null());
  EXPECT_THAT(summary(results), AllOf(HasSubstr("669,706 parameters"), HasSubstr("identical after each of 14 steps"),
                                      HasSubstr("exposed"), HasSubstr("images/s")));
}

TEST(Records, SurviveTheTrip) {
  const Progress before{.epoch = 3,
                        .epochs = 9,
                        .step = 4,
                        .steps = 63,
                        .epoch_over = true,
                        .loss = 0.5,
                        .accuracy = 0.25,
                        .images_per_second = 1e6};
  Progress after;
  ASSERT_TRUE(from_record(nlohmann::json::parse(to_record(before).dump()), after));
  EXPECT_EQ(after.epoch, 3);
  EXPECT_EQ(after.steps, 63u);
  EXPECT_TRUE(after.epoch_over);
  EXPECT_EQ(after.accuracy, 0.25);
  Error error;
  EXPECT_FALSE(from_record(to_record(before), error));
  ASSERT_TRUE(from_record(to_record(Error{ErrorCode::kRemote, "gone"}), error));
  EXPECT_EQ(error.code, ErrorCode::kRemote);
  EXPECT_EQ(error.message, "gone");
}

TEST(Records, ALossThatIsNotFiniteStillArrives) {
  Progress after;
  EXPECT_TRUE(from_record(nlohmann::json::parse(to_record(Progress{.epoch = 1, .loss = NAN}).dump()), after));
  EXPECT_EQ(after.epoch, 1);
}

}  // namespace
}  // namespace clustar::bench::trainer
