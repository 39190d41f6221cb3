// Bars where something went wrong: failed and missed runs, too few pairs, the wrong reference. A suite of known
// numbers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/ab/suite/figures.h"
#include "bench/ab/suite/page.h"
#include "bench/ab/suite/table.h"
#include "tests/ab/suite_json.h"

namespace clustar::bench::ab::suite {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

json run_of(const std::string& arm, int round, double step_s, double target_s) {
  const bool tolerant = arm.starts_with("mlt-p") && !arm.starts_with("mlt-p0/");
  return {{"arm", arm},
          {"round", round},
          {"images_per_second", 100 / step_s},
          {"train_s", 100 * step_s},
          {"steps", 100},
          {"accuracy", 0.95},
          {"time_to_target_s", target_s},
          {"replicas_identical", true},
          {"missing_bytes", tolerant ? 400 : 0},
          {"eligible_bytes", 1e6},
          {"loss_bound", 0.01},
          {"per_epoch", {{"accuracy", {0.5, 0.95 + 0.0001 * round}}, {"train_s", {1.0, 1.0}}}},
          {"curve", {{"step", {1, 2}}, {"loss", {2.0, 1.0}}, {"train_s", {1.0, 2.0}}}},
          {"step_seconds", {step_s, step_s}},
          {"super_packets", 0}};
}

// TCP needs 12 s, the others 10; the ring alone.
json suite_of(const std::vector<std::string>& carriers, int rounds, bool target) {
  json scenario{{"name", "gray"},
                {"title", "t"},
                {"question", "q"},
                {"ranks", 8},
                {"fabric", "f"},
                {"notes", json::array()},
                {"place", {{"text", "a place"}, {"proof", {{"per_packet", true}}}}},
                {"losses", {"h1: loss 1%"}},
                {"problems", json::array()},
                {"arms", json::array()},
                {"runs", json::array()}};
  for (const std::string& carrier : carriers) {
    scenario["arms"].push_back({{"name", carrier + "/ring"},
                                {"carrier", carrier},
                                {"algorithm", "ring"},
                                {"label", carrier},
                                {"settings", json::object()},
                                {"rto_min_us", 0},
                                {"train_arguments", json::array()},
                                {"left_out", nullptr}});
    const double times = carrier.starts_with("tcp") ? 1.2 : 1;
    for (int round = 1; round <= rounds; ++round) {
      scenario["runs"].push_back(run_of(carrier + "/ring", round, 0.1 * times, 10 * times));
    }
  }
  json training = empty_training(rounds, target);
  training["scenarios"].push_back(scenario);
  return training;
}

const std::vector<std::string> kAll{"tcp-cubic", "tcp-cubic-rto5", "tcp-bbr-rto5", "mlt-p0", "mlt-p1", "mlt-p0.5"};

json& run_in(json& training, const std::string& arm, int round) {
  for (json& run : training["scenarios"][0]["runs"]) {
    if (run["arm"] == arm && run["round"] == round) return run;
  }
  ADD_FAILURE() << arm;
  return training;
}

void fail_run(json& training, const std::string& arm, int round, const std::string& why) {
  json& run = run_in(training, arm, round);
  run = {{"arm", arm}, {"round", round}, {"failed", why}};
}

json bar(const json& training, const std::string& arm, const std::string& what) {
  for (const json& one : training["bars"]) {
    if (one["arm"] == arm && one["what"].get<std::string>().find(what) != std::string::npos) return one;
  }
  ADD_FAILURE() << "no bar " << what << " of " << arm;
  return {{"met", "none"}, {"text", ""}};
}

std::string text(const json& bar) { return bar["text"]; }

TEST(SuiteBarsInTrouble, AFailedRunMissesContractAndAccuracy) {
  json training = suite_of(kAll, 10, false);
  fail_run(training, "mlt-p1/ring", 3, "replicas differ after step 7");
  judge(training);
  for (const char* what : {"identical", "0.5 points"}) {
    const json missed = bar(training, "mlt-p1/ring", what);
    EXPECT_EQ(missed["met"], false) << what;
    EXPECT_THAT(text(missed), HasSubstr("replicas differ after step 7"));
    EXPECT_EQ(bar(training, "mlt-p0.5/ring", what)["met"], true) << "each tolerant arm has its own: " << what;
  }
  json none = suite_of(kAll, 10, false);
  for (int round = 1; round <= 10; ++round) fail_run(none, "mlt-p1/ring", round, "the loss ledger was broken");
  judge(none);
  EXPECT_EQ(bar(none, "mlt-p1/ring", "identical")["met"], false) << "also without one good run";
  EXPECT_THAT(page({{"version", "0"}, {"machine", json::object()}, {"training", none}}),
              HasSubstr("ledger was broken"));
  EXPECT_THAT(table(none), HasSubstr("has 0 good runs of 10"));
}

TEST(SuiteBarsInTrouble, ParaexpressIsHeldToTheRingOfTheBetterTcp) {
  json training = suite_of({"tcp-cubic-rto5", "tcp-bbr-rto5", "mlt-p0"}, 5, false);
  json& scenario = training["scenarios"][0];
  scenario["name"] = "spine-shuffled";
  json arm = scenario["arms"][0];
  arm["name"] = "tcp-cubic-rto5/paraexpress";
  arm["algorithm"] = "paraexpress";
  scenario["arms"].push_back(arm);
  // TCP's ring takes 0.12 s a step.
  for (int round = 1; round <= 5; ++round) scenario["runs"].push_back(run_of(arm["name"], round, 0.055, 5.5));
  judge(training);
  const json met = bar(training, "tcp-cubic-rto5/paraexpress", "2 times sooner");
  EXPECT_EQ(met["met"], true) << met;
  EXPECT_THAT(text(met), HasSubstr("/ring"));
  for (json& run : scenario["runs"]) {
    if (run["arm"] == arm["name"])
      run["step_seconds"] = {0.065, 0.065}, run["train_s"] = 6.5, run["images_per_second"] = 100 / 0.065;
  }
  judge(training);
  EXPECT_EQ(bar(training, "tcp-cubic-rto5/paraexpress", "2 times sooner")["met"], false);
}

TEST(SuiteBarsInTrouble, AContractIsMetByAllRuns) {
  json training = suite_of(kAll, 10, false);
  training["options"]["rounds"] = 12;
  judge(training);
  const json open = bar(training, "mlt-p1/ring", "identical");
  EXPECT_TRUE(open["met"].is_null());
  EXPECT_THAT(text(open), HasSubstr("10 of 12 runs"));
  run_in(training, "mlt-p1/ring", 2)["replicas_identical"] = false;
  judge(training);
  EXPECT_EQ(bar(training, "mlt-p1/ring", "identical")["met"], false) << "one that broke it is enough";
}

TEST(SuiteBarsInTrouble, WhatFailedOrMissedTheTargetIsNotLeftOutOfTheTime) {
  json training = suite_of(kAll, 10, true);
  judge(training);
  EXPECT_EQ(bar(training, "mlt-p0/ring", "1.1 times")["met"], true);
  EXPECT_THAT(text(bar(training, "mlt-p0/ring", "1.1 times")), HasSubstr("10 of 10 pairs"));
  // The candidate in most rounds, by failing and by not getting there: never sooner.
  for (int round = 1; round <= 3; ++round) fail_run(training, "mlt-p0/ring", round, "time limit");
  for (int round = 4; round <= 6; ++round) run_in(training, "mlt-p0/ring", round)["time_to_target_s"] = nullptr;
  judge(training);
  const json missed = bar(training, "mlt-p0/ring", "1.1 times");
  EXPECT_EQ(missed["met"], false);
  EXPECT_EQ(missed["value"], 0.0);
  EXPECT_THAT(text(missed), HasSubstr("6 where it failed or missed the target"));
  EXPECT_EQ((*find_named(training["scenarios"][0]["figures"], "mlt-p0/ring"))["reached"], 4);
  EXPECT_THAT(table(training), HasSubstr("(4/10)"));
}

TEST(SuiteBarsInTrouble, AReferenceThatFailsHasTakenItsTimeLimitAtLeast) {
  json training = suite_of(kAll, 10, true);
  for (int round = 1; round <= 10; ++round) {
    for (const char* arm : {"tcp-cubic-rto5/ring", "tcp-bbr-rto5/ring"}) {
      if (round <= 6) fail_run(training, arm, round, "time limit");
      if (round == 7) run_in(training, arm, round)["time_to_target_s"] = nullptr;
    }
  }
  fail_run(training, "mlt-p0/ring", 10, "died");
  fail_run(training, "mlt-p0/ring", 1, "died");
  judge(training);
  const json& figure = *find_named(training["scenarios"][0]["figures"], "mlt-p0/ring");
  EXPECT_THAT(figure["reference"].get<std::string>(), HasSubstr("rto5")) << "no fallback because it is slow";
  EXPECT_EQ(figure["time_ratio"]["pairs"], 9);
  EXPECT_EQ(figure["time_ratio"]["neither"], 1);
  EXPECT_EQ(figure["time_ratio"]["censored_reference"], 6);
  EXPECT_EQ(figure["time_ratio"]["censored_arm"], 1);
  EXPECT_NEAR(figure["time_ratio"]["ratio"].get<double>(), 60, 1e-9);
  EXPECT_EQ(bar(training, "mlt-p0/ring", "1.1 times")["met"], true) << "the pair that says nothing is counted";
}

TEST(SuiteBarsInTrouble, AnArmThatIsLeftOutGoesOnFailing) {
  json training = suite_of(kAll, 10, false);
  json kept = json::array();
  for (const json& run : training["scenarios"][0]["runs"]) {
    if (run["arm"] != "mlt-p0/ring" || run["round"] <= 2) kept.push_back(run);
  }
  training["scenarios"][0]["runs"] = kept;
  judge(training);
  EXPECT_TRUE(bar(training, "mlt-p0/ring", "1.1 times")["met"].is_null()) << "two pairs, the rest not run yet";
  for (int round : {1, 2}) fail_run(training, "mlt-p0/ring", round, "died");
  (*const_cast<json*>(find_named(training["scenarios"][0]["arms"], "mlt-p0/ring")))["left_out"] = "died";
  judge(training);
  EXPECT_EQ(bar(training, "mlt-p0/ring", "1.1 times")["met"], false);
}

TEST(SuiteBarsInTrouble, TheBarNeedsBothRtoArms) {
  json training = suite_of({"tcp-cubic", "tcp-cubic-rto5", "mlt-p0"}, 10, true);
  judge(training);
  json open = bar(training, "mlt-p0/ring", "1.1 times");
  EXPECT_TRUE(open["met"].is_null());
  EXPECT_THAT(text(open), HasSubstr("the bar needs both rto5 arms: tcp-bbr-rto5/ring is not among the arms"));
  EXPECT_THAT(training["warnings"].dump(), Not(HasSubstr("kernel's minimum RTO")));
  training = suite_of({"tcp-cubic", "mlt-p0"}, 10, true);
  judge(training);
  open = bar(training, "mlt-p0/ring", "1.1 times");
  EXPECT_TRUE(open["met"].is_null());
  EXPECT_NEAR(open["value"].get<double>(), 1.2, 1e-9) << "the ratio stays";
  EXPECT_THAT(training["warnings"].dump(), HasSubstr("taken to tcp-cubic/ring, which has the kernel's minimum RTO"));
  training = suite_of(kAll, 10, true);
  training["reference"] = "tcp-cubic";
  judge(training);
  EXPECT_THAT(text(bar(training, "mlt-p0/ring", "1.1 times")), HasSubstr("--reference is tcp-cubic"));
}

TEST(SuiteBarsInTrouble, FewPairsGiveNoVerdict) {
  json training = suite_of(kAll, 4, true);
  judge(training);
  EXPECT_TRUE(bar(training, "mlt-p0/ring", "1.1 times")["met"].is_null());
  training = suite_of(kAll, 1, true);
  judge(training);
  const json one = bar(training, "mlt-p0/ring", "1.1 times");
  EXPECT_TRUE(one["met"].is_null() && one["low"].is_null() && one["high"].is_null());
  EXPECT_NEAR(one["value"].get<double>(), 1.2, 1e-9);
  EXPECT_THAT(page({{"version", "0"}, {"machine", json::object()}, {"training", training}}), Not(HasSubstr("nan")));
  training = suite_of(kAll, 9, false);
  judge(training);
  const json few = bar(training, "mlt-p1/ring", "0.5 points");
  EXPECT_TRUE(few["met"].is_null());
  EXPECT_THAT(text(few), HasSubstr("fewer than 10 pairs"));
  training = suite_of(kAll, 10, true);
  for (int round = 1; round <= 5; ++round) run_in(training, "mlt-p0/ring", round)["time_to_target_s"] = 11.5;
  judge(training);
  EXPECT_THAT(text(bar(training, "mlt-p0/ring", "1.1 times")), HasSubstr("the interval includes the limit"));
}

TEST(SuiteBarsInTrouble, AccuracyIsJudgedWhereSomethingIsMissingAfterEqualEpochs) {
  json training = suite_of(kAll, 10, true);
  judge(training);
  EXPECT_TRUE(bar(training, "mlt-p1/ring", "0.5 points")["met"].is_null());
  EXPECT_THAT(text(bar(training, "mlt-p1/ring", "0.5 points")), HasSubstr("--epochs"));
  training = suite_of(kAll, 10, false);
  judge(training);
  EXPECT_EQ(bar(training, "mlt-p1/ring", "0.5 points")["met"], true);
  run_in(training, "mlt-p1/ring", 4)["missing_bytes"] = 0;
  judge(training);
  EXPECT_TRUE(bar(training, "mlt-p1/ring", "0.5 points")["met"].is_null());
  EXPECT_THAT(text(bar(training, "mlt-p1/ring", "0.5 points")), HasSubstr("nothing was missing"));
}

TEST(SuiteWarnings, NameWhatIsMissingAndWhatWasBefore) {
  json training = suite_of(kAll, 10, false);
  json& scenario = training["scenarios"][0];
  fail_run(training, "mlt-p1/ring", 3, "died");
  run_in(training, "mlt-p0/ring", 2)["failed_before"] = {"died once"};
  scenario["earlier_problems"] = {"no switch program"};
  scenario["earlier_places"] = {{{"text", "then"}, {"proof", {{"per_packet", false}}}}};
  training["interrupted"] = true;
  training["ended_by"] = "still running: the file is not complete";
  judge(training);
  const std::string warnings = training["warnings"].dump();
  for (const char* part :
       {"mlt-p1/ring has 9 good runs of 10", "mlt-p1/ring failed in 1 of its runs: died", "died once",
        "before it went on: no switch program", "no super-packets, failed", "still running"}) {
    EXPECT_THAT(warnings, HasSubstr(part));
  }
}

TEST(SuiteCurves, TheMedianEndsWithTheFirstRun) {
  const std::vector<Curve> runs{{{1, 1}, {2, 2}, {3, 3}}, {{1, 3}, {2, 4}}, {{1, 2}, {2, 9}, {3, 9}}};
  EXPECT_EQ(median_curve(runs), (Curve{{1, 2}, {2, 4}}));
  EXPECT_TRUE(median_curve({}).empty());
}

TEST(SuiteCurves, RunsOfAChartShareTheirGroups) {
  json training = suite_of({"mlt-p0"}, 2, false);
  json& curve = run_in(training, "mlt-p0/ring", 2)["curve"];
  // 120 steps are groups of two; the short run's two steps are then one point, and so is the median.
  curve = {{"step", json::array()}, {"loss", json::array()}, {"train_s", json::array()}};
  for (int step = 1; step <= 120; ++step) {
    for (const char* key : {"step", "loss", "train_s"}) curve[key].push_back(step);
  }
  judge(training);
  EXPECT_THAT(plots_of(training, training["scenarios"][0]), Not(HasSubstr("nan")));
  EXPECT_EQ(colour_of("mlt-p0.5"), "of-mlt-p0_5");
}

}  // namespace
}  // namespace clustar::bench::ab::suite
