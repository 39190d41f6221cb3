// Training on more and more ranks, with runs that are made up: the rules, the order, the figures, table and page.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/ab/scaling/results.h"
#include "bench/report/report.h"

namespace clustar::bench::ab::scaling {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

ScalingPlan plan_of(std::vector<int> ranks, int rounds = 2, BatchRule rule = BatchRule::kWeak) {
  ScalingPlan plan{.base = {}, .ranks = std::move(ranks), .rule = rule};
  plan.base.baseline = {"one <socket>", {{"CLUSTAR_TCP_SOCKETS", "1"}}, "/x.so"};
  plan.base.candidate = {"four", {{"CLUSTAR_TCP_SOCKETS", "4"}}, "/x.so"};
  plan.base.rounds = rounds;
  plan.base.train.model = "lr";
  plan.base.train.batch = 32;
  plan.base.train.rate = 0.05;
  plan.base.train.generated = 4000;
  return plan;
}

// Of one rank 100 images/s and 10 more in each round; of n ranks over arm A half of linear, over B three quarters.
Result<Run> made_up(const Plan& plan, Role role, int round) {
  const double part = plan.ranks == 1 ? 1 : role == Role::kBaseline ? 0.5 : role == Role::kCandidate ? 0.75 : 0.9;
  Run run{.role = role, .round = round, .train = {}, .network = {10, 1000, 1}, .wall_s = 1};
  run.train = {{"images_per_second", plan.ranks * part * (100 + 10 * round)},
               {"train_s", 1.0},
               {"compute_s", 0.4},
               {"exposed_comm_s", role == Role::kCeiling ? 0.0 : 0.5},
               {"hidden_comm_s", 0.1},
               {"steps", 20},
               {"images", 2000},
               {"accuracy", 0.9},
               {"loss", 0.5},
               {"replicas_identical", role == Role::kCeiling ? json(nullptr) : json(true)},
               {"config", {{"epochs", 2}, {"batch", plan.train.batch}, {"rate", plan.train.rate}}},
               {"shape", "784-10"},
               {"gradient_bytes", 31400},
               {"replay", nullptr}};
  return run;
}

json outcome_of(const ScalingPlan& plan, const RunOne& run_one = made_up) {
  const auto outcomes = conduct(plan, run_one, {});
  return outcomes ? to_json(plan, *outcomes, std::nullopt) : json(outcomes.error().message);
}

json document_of(const json& outcome) {
  json document = report::envelope("ab", rows(outcome));
  document["command_line"] = "clustar ab --scaling 1,2";
  document["scaling"] = outcome;
  return document;
}

TEST(Scaling, CountsAscendFromOne) {
  EXPECT_THAT(*parse_counts("1,2,4,8", 64), ElementsAre(1, 2, 4, 8));
  EXPECT_THAT(*parse_counts("1,3", 3), ElementsAre(1, 3));
  for (const char* wrong : {"", "1", "2,4", "1,1", "1,4,2", "1,2,", ",1,2", "1,two", "1,2.5", "1,65", "1 2", "1,-2"}) {
    const auto counts = parse_counts(wrong, 64);
    ASSERT_FALSE(counts) << wrong;
    EXPECT_THAT(counts.error().message, AllOf(HasSubstr("1,2,4,8"), HasSubstr("64"))) << wrong;
  }
}

TEST(Scaling, WeakGrowsBatchAndRateAndStrongNeither) {
  const Plan weak = plan_at(plan_of({1, 4}), 4);
  EXPECT_EQ(weak.ranks, 4);
  EXPECT_EQ(weak.train.batch, 128);
  EXPECT_DOUBLE_EQ(weak.train.rate, 0.2);
  const Plan strong = plan_at(plan_of({1, 4}, 2, BatchRule::kStrong), 4);
  EXPECT_EQ(strong.ranks, 4);
  EXPECT_EQ(strong.train.batch, 32);
  EXPECT_DOUBLE_EQ(strong.train.rate, 0.05);
  EXPECT_EQ(weak.train.generated, 4000u);
  ScalingPlan replay = plan_of({1, 4});
  replay.base.train.compute.kind = trainer::ComputeKind::kEstimate;
  EXPECT_EQ(plan_at(replay, 4).train.generated, 16000u) << "as many steps as one rank has";
}

TEST(Scaling, RoundsGoUpAndDownAndOneRankRunsOnce) {
  const ScalingPlan plan = plan_of({1, 2});
  const Slot alone{1, Role::kCeiling}, a{2, Role::kBaseline}, c{2, Role::kCeiling}, b{2, Role::kCandidate};
  EXPECT_THAT(order_of_round(plan, 0), ElementsAre(alone, a, c, b));
  EXPECT_THAT(order_of_round(plan, 1), ElementsAre(b, c, a, alone));
}

std::string why_not(const ScalingPlan& plan) {
  const auto ok = check(plan);
  return ok ? "" : ok.error().message;
}

TEST(Scaling, RefusesWhatDoesNotFit) {
  EXPECT_EQ(why_not(plan_of({1, 8})), "");
  EXPECT_EQ(why_not(plan_of({1, 32}, 2, BatchRule::kStrong)), "");
  EXPECT_THAT(why_not(plan_of({1, 33}, 2, BatchRule::kStrong)), HasSubstr("--batch 32"));
  ScalingPlan few = plan_of({1, 2});
  few.base.train.generated = 79;
  EXPECT_THAT(why_not(few), AllOf(HasSubstr("--examples 79"), HasSubstr("allowed: 80")));
  few.base.train.generated = 80;
  EXPECT_EQ(why_not(few), "");
  few.base.train.generated = 31;
  few.base.train.compute.kind = trainer::ComputeKind::kEstimate;  // holds nothing out, and each rank has so many
  EXPECT_THAT(why_not(few), HasSubstr("allowed: 32"));
  few.base.train.generated = 32;
  EXPECT_EQ(why_not(few), "");
  ScalingPlan steep = plan_of({1, 2, 4});
  steep.base.train.rate = 250;
  EXPECT_EQ(why_not(steep), "");
  steep.base.train.rate = 600;
  EXPECT_THAT(why_not(steep), AllOf(HasSubstr("--lr 600"), HasSubstr("4 ranks would have 2400"), HasSubstr("0 to 1000"),
                                    HasSubstr("allowed: 250 at most")));
  steep.rule = BatchRule::kStrong;
  EXPECT_EQ(why_not(steep), "");
  ScalingPlan wide = plan_of({1, 2});
  wide.base.train.batch = 1 << 20;
  EXPECT_THAT(why_not(wide), AllOf(HasSubstr("--batch 1048576"), HasSubstr("2097152"), HasSubstr("1 to 1048576")));
  ScalingPlan many = plan_of({1, 2});
  many.base.train.generated = 500'001;
  EXPECT_EQ(why_not(many), "") << "a training has as many for all its ranks together";
  many.base.train.compute.kind = trainer::ComputeKind::kEstimate;
  EXPECT_THAT(why_not(many), AllOf(HasSubstr("--examples 500001"), HasSubstr("1000002"), HasSubstr("allowed: 500000")));
  ScalingPlan target = plan_of({1, 2});
  target.base.train.target_accuracy = 0.9;
  EXPECT_THAT(why_not(target), HasSubstr("--target-accuracy"));
  ScalingPlan helped = plan_of({1, 2});
  helped.base.candidate = {"h", {}, "", {{"collective", "paraexpress"}, {"helpers", "1"}}};
  EXPECT_THAT(why_not(helped), AllOf(HasSubstr("--candidate"), HasSubstr("helpers")));
}

TEST(Scaling, EfficiencyIsOfTheSameRound) {
  const json outcome = outcome_of(plan_of({1, 2, 4}, 3));
  ASSERT_TRUE(outcome.is_object()) << outcome;
  EXPECT_EQ(outcome["rounds"], 3);
  const json alone = find_point(outcome, 1, "one rank");
  EXPECT_EQ(alone["images_per_second"], (json{{"median", 110.0}, {"min", 100.0}, {"max", 120.0}}));
  EXPECT_EQ(alone["efficiency"]["median"], 1.0);
  for (const int ranks : {2, 4}) {
    const json a = find_point(outcome, ranks, "baseline");
    const json b = find_point(outcome, ranks, "candidate");
    // Rounds differ by a tenth, efficiencies do not.
    EXPECT_EQ(a["efficiency"], (json{{"median", 0.5}, {"min", 0.5}, {"max", 0.5}}));
    EXPECT_EQ(b["efficiency"]["median"], 0.75);
    EXPECT_EQ(a["images_per_second"]["median"], ranks * 55.0);
    EXPECT_EQ(a["linear_images_per_second"], ranks * 110.0);
    EXPECT_EQ(a["batch"], 32 * ranks);
    EXPECT_EQ(a["exposed_comm_ms_per_step"], 25.0);
    EXPECT_EQ(a["accuracy"], 0.9);
    EXPECT_TRUE(find_point(outcome, ranks, "no communication")["accuracy"].is_null());
  }
  ASSERT_EQ(outcome["ratios"].size(), 2u);
  EXPECT_EQ(outcome["ratios"][1]["ranks"], 4);
  EXPECT_DOUBLE_EQ(outcome["ratios"][1]["ratio"].get<double>(), 1.5);
  EXPECT_TRUE(find_point(outcome, 8, "baseline").is_null());
  EXPECT_EQ(rows(outcome).size(), 7u);
  EXPECT_EQ(rows(outcome)[1]["candidate"], "four");
}

TEST(Scaling, WarnsWhereTheMachineItselfDoesNotScale) {
  const std::string warnings = outcome_of(plan_of({1, 2}))["warnings"].dump();
  EXPECT_THAT(warnings, AllOf(HasSubstr("2 ranks reach 0.90 of linear"), HasSubstr("no transport"),
                              HasSubstr("2 of at least 5 rounds")));
  const auto better = [](const Plan& plan, Role role, int round) {
    auto run = made_up(plan, role, round);
    if (plan.ranks > 1 && role == Role::kCeiling) run->train["images_per_second"] = plan.ranks * (100 + 10 * round);
    if (role == Role::kCandidate) run->train["steps"] = 4;
    return run;
  };
  const std::string others = outcome_of(plan_of({1, 2}, 5), better)["warnings"].dump();
  EXPECT_THAT(others, AllOf(Not(HasSubstr("linear")), Not(HasSubstr("at least 5")), HasSubstr("4 steps only")));
}

TEST(Scaling, WarnsWhereTheKernelChoosesTheCongestionControl) {
  ScalingPlan plan = plan_of({1, 2});
  plan.base.baseline = {"server", {}, "", {{"collective", "ps"}}};
  plan.base.candidate.settings["CLUSTAR_TCP_CONGESTION"] = "cubic";
  const auto told_of = [&](const json& transport) {
    auto outcomes = conduct(plan,
                            [&](const Plan& at, Role role, int round) {
                              auto run = made_up(at, role, round);
                              run->train["transport"] = role == Role::kBaseline ? transport : json(nullptr);
                              return run;
                            },
                            {});
    outcomes->kernel_congestion_control = "reno";
    return to_json(plan, *outcomes, std::nullopt);
  };
  const json outcome = told_of({{"transport", "kernel TCP"}});
  EXPECT_THAT(outcome["warnings"].dump(),
              AllOf(HasSubstr("'server' leaves TCP's congestion control to the kernel (reno), "
                              "as a parameter server of 2018 does"),
                    Not(HasSubstr("'four'"))));
  EXPECT_THAT(table(outcome), AllOf(HasSubstr("server; congestion control: reno (kernel's default)"),
                                    HasSubstr("four; congestion control: cubic CLUSTAR_TCP_CONGESTION=cubic")));
  plan.base.baseline = {"ours", {}, "/x.so"};
  EXPECT_THAT(told_of(nullptr)["warnings"].dump(), HasSubstr("set CLUSTAR_TCP_CONGESTION in both arms"));
}

TEST(Scaling, ARunThatFailsIsNamedAndRoundsBeforeItAreKept) {
  const auto fails_in = [](int bad_round) {
    return [bad_round](const Plan& plan, Role role, int round) -> Result<ab::Run> {
      if (round == bad_round && plan.ranks == 2 && role == Role::kCandidate) return fail(ErrorCode::kInternal, "gone");
      return made_up(plan, role, round);
    };
  };
  EXPECT_EQ(outcome_of(plan_of({1, 2}), fails_in(0)), "round 1 of 2, 2 ranks, candidate: gone");
  const json kept = outcome_of(plan_of({1, 2}), fails_in(1));
  EXPECT_EQ(kept["rounds"], 1);
  EXPECT_EQ(kept["planned_rounds"], 2);
  EXPECT_EQ(kept["ended_by"], "round 2 of 2, 2 ranks, candidate: gone");
  EXPECT_EQ(kept["runs"].size(), 4u);
  EXPECT_THAT(kept["warnings"].dump(), HasSubstr("1 of 2 rounds were done"));
}

TEST(Scaling, AnInterruptEndsItBetweenRuns) {
  int runs = 0;
  const auto outcomes = conduct(plan_of({1, 2}, 9),
                                [&](const Plan& plan, Role role, int round) {
                                  ++runs;
                                  return made_up(plan, role, round);
                                },
                                {.on_run = {}, .on_round = {}, .interrupted = [&] { return runs == 6 ? 2 : 0; }});
  ASSERT_TRUE(outcomes);
  EXPECT_EQ(runs, 6);
  EXPECT_EQ(outcomes->runs.size(), 4u);
  EXPECT_THAT(outcomes->ended_by, HasSubstr("interrupted by signal 2"));
}

TEST(Scaling, TableAndPageShowEveryPoint) {
  const json outcome = outcome_of(plan_of({1, 2, 4}));
  const std::string text = table(outcome);
  EXPECT_THAT(text, AllOf(HasSubstr("one rank"), HasSubstr("no communication"), HasSubstr("1.500 ("),
                          HasSubstr("0.750"), HasSubstr("batch 32, learning rate 0.05"), HasSubstr("Goyal")));
  EXPECT_THAT(text, Not(HasSubstr("REPLAY")));
  const std::string html = page(document_of(outcome));
  EXPECT_THAT(html, AllOf(HasSubstr("linear"), HasSubstr("one &lt;socket&gt;"), Not(HasSubstr("one <socket>")),
                          HasSubstr("<path"), Not(HasSubstr("REPLAY"))));
}

TEST(Scaling, AReplayIsLabelledEverywhere) {
  const std::string label = "REPLAY, not computed: times of a test, x 8; bytes / 8";
  const json outcome = outcome_of(plan_of({1, 2}), [&](const Plan& plan, Role role, int round) {
    auto run = made_up(plan, role, round);
    run->train["replay"] = {{"label", label}};
    for (const char* learned : {"loss", "accuracy"}) run->train[learned] = nullptr;
    return run;
  });
  EXPECT_THAT(table(outcome), HasSubstr(label));
  EXPECT_THAT(page(document_of(outcome)), HasSubstr(label));
  EXPECT_TRUE(find_point(outcome, 2, "baseline")["accuracy"].is_null());
  for (const json& row : rows(outcome)) EXPECT_EQ(row["replay"], label);
}

}  // namespace
}  // namespace clustar::bench::ab::scaling
