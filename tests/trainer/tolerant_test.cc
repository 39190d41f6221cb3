// `clustar train --tolerant`: training that does not wait for late ranks and lost packets.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "bench/trainer/tolerance.h"
#include "tests/trainer/command.h"

namespace clustar::bench::trainer {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Tolerance, IsReadAndWritten) {
  const auto all = parse_tolerance("q=3,deadline=1.5ms,staleness=4,p=0.5%");
  ASSERT_TRUE(all) << all.error().message;
  EXPECT_EQ(all->quorum, 3U);
  EXPECT_EQ(all->deadline, std::chrono::microseconds(1500));
  EXPECT_EQ(all->staleness, 4U);
  EXPECT_EQ(all->tolerance_ppm, 5000U);
  EXPECT_EQ(to_text(*all, 5), "q=3,deadline=1.5ms,staleness=4,p=0.5%");
  const auto some = parse_tolerance("p=0.01,deadline=2s");
  ASSERT_TRUE(some);
  EXPECT_EQ(some->deadline, std::chrono::seconds(2));
  EXPECT_EQ(some->tolerance_ppm, 10'000U);
  EXPECT_EQ(to_text(*some, 5), "q=4,deadline=2000ms,staleness=8,p=1%");
  EXPECT_EQ(parse_tolerance("deadline=0ms")->deadline, Duration(0));
}

TEST(Tolerance, ErrorsSayWhatIsAllowed) {
  for (const char* wrong : {"",
                            "q",
                            "q=0",
                            "q=257",
                            "q=1.5",
                            "q=x",
                            "deadline=5",
                            "deadline=-1ms",
                            "deadline=2h",
                            "deadline=nanms",
                            "staleness=-1",
                            "staleness=1025",
                            "p=11%",
                            "p=0.2",
                            "p=-1%",
                            "p=%",
                            "q=2,q=2",
                            "q=2,",
                            "k=3",
                            "q=2;p=1%"}) {
    const auto tolerance = parse_tolerance(wrong);
    ASSERT_FALSE(tolerance) << wrong;
    EXPECT_THAT(tolerance.error().message, AllOf(HasSubstr("q=RANKS"), HasSubstr("deadline=TIME"))) << wrong;
  }
}

TEST(TrainTolerantly, WithoutStalenessItTrainsAsTheStrictContractDoes) {
  const Words common = plus(kShortRun, {"--ranks", "3"});
  const json strict = results_by("paraexpress", plus(common, {"--plan", "direct"}));
  const json tolerant = results_by("paraexpress", plus(common, {"--tolerant", "staleness=0"}));
  EXPECT_EQ(tolerant["replicas_identical"], true);
  EXPECT_NEAR(tolerant["loss"].get<double>(), strict["loss"].get<double>(), 1e-5);
  EXPECT_EQ(tolerant["missing_contributions"], 0);
  EXPECT_EQ(tolerant["tolerant"]["skipped_steps"], 0);
  EXPECT_EQ(tolerant["config"]["check_equal"], "epoch");
  EXPECT_EQ(tolerant["images"], strict["images"]);
  EXPECT_TRUE(strict["tolerant"].is_null());
  EXPECT_TRUE(strict["missing_contributions"].is_null());
}

TEST(TrainTolerantly, ASlowRankLeavesOutStepsAndReplicasStayEqual) {
  const json run =
      results_by("paraexpress", {"--model", "mlp-small", "--epochs", "3", "--batch", "80", "--examples", "1000",
                                 "--ranks", "4", "--slow", "1=10", "--tolerant", "q=1,deadline=1ms,staleness=30"});
  EXPECT_EQ(run["replicas_identical"], true);
  EXPECT_EQ(run["slow"], (json{{"1", 10.0}}));
  EXPECT_EQ(run["tolerant"]["terms"], "q=1,deadline=1ms,staleness=30,p=0%");
  const auto skipped = run["per_rank"][1]["skipped_steps"].get<int>();
  EXPECT_GT(skipped, 0);
  EXPECT_GT(run["missing_contributions"].get<double>(), 0.0);
  // 20 examples of each.
  EXPECT_EQ(run["images"].get<int>(), run["steps"].get<int>() * 80 - 20 * run["tolerant"]["skipped_steps"].get<int>());
  EXPECT_LT(run["loss"].get<double>(), 2.0);
}

TEST(TrainTolerantly, WhatMltLosesStaysWithinTheBoundAndIsSummedLater) {
  setenv("CLUSTAR_TRANSPORT", "mlt", 1);
  const json run =
      results_by("paraexpress", {"--model", "mlp", "--epochs", "4", "--batch", "100", "--examples", "1000", "--ranks",
                                 "2", "--inject-loss", "0.03", "--tolerant", "q=2,deadline=10s,p=2%"});
  unsetenv("CLUSTAR_TRANSPORT");
  EXPECT_EQ(run["replicas_identical"], true);
  const double missing = run["missing_contributions"], expected = run["expected_contributions"];
  EXPECT_GT(missing, 0.0);
  EXPECT_LE(missing, 0.02 * expected);
}

TEST(TrainTolerantly, TheTableSaysWhatWasLate) {
  const Outcome outcome = run_clustar(
      train_by("paraexpress", plus(kShortRun, {"--ranks", "2", "--slow", "0=2", "--tolerant", "q=1,deadline=1ms"})));
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("q=1,deadline=1ms,staleness=8,p=0%"), HasSubstr("a step or more later"),
                                 HasSubstr("rank 0 computes 2 times as long")));
}

TEST(TrainTolerantly, OneRankAloneIsPlainSgd) {
  const json plain = results_by("paraexpress", kShortRun);
  const json tolerant = results_by("paraexpress", plus(kShortRun, {"--tolerant", "deadline=1ms"}));
  EXPECT_EQ(tolerant["parameters_digest"], plain["parameters_digest"]);
}

TEST(TrainTolerantly, WhatDoesNotFitIsRefused) {
  const std::vector<std::pair<Words, std::string>> cases{
      {{"--tolerant", "q=5"}, "there are 4 ranks; allowed: 1 to 4"},
      {{"--tolerant", "q=none"}, "q=RANKS (1 to 256)"},
      {{"--tolerant", "q=2", "--plan", "ring"}, "--plan is not for --tolerant"},
      {{"--tolerant", "q=2", "--helpers", "1"}, "--helpers is not for --tolerant"},
      {{"--tolerant", "q=2", "--codec", "topk", "--codec-path", "reduce"}, "both keep what a step leaves out"},
      {{"--slow", "4=2"}, "there is no rank 4; allowed: 0 to 3"},
      {{"--slow", "1=0.5"}, "is not RANK=FACTOR"},
      {{"--slow", "1"}, "is not RANK=FACTOR"},
      {{"--slow", "1=2,1=3"}, "is not RANK=FACTOR"},
  };
  for (const auto& [options, expected] : cases) {
    const Outcome outcome = run_clustar(train_by("paraexpress", plus({"--ranks", "4"}, options)));
    EXPECT_EQ(outcome.status, 2) << options[1] << "\n" << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(expected)) << options[1];
  }
  const Outcome proxy = run_clustar(train_by("proxy", {"--ranks", "2", "--tolerant", "q=2"}));
  EXPECT_EQ(proxy.status, 2);
  EXPECT_THAT(proxy.err, HasSubstr("--tolerant is of --collective paraexpress only"));
}

}  // namespace
}  // namespace clustar::bench::trainer
