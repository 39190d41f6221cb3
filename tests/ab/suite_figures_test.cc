// From runs to figures, bars, table and page: numbers that are known.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/ab/suite/captured.h"
#include "bench/ab/suite/figures.h"
#include "bench/ab/suite/page.h"
#include "bench/ab/suite/table.h"
#include "bench/report/style.h"
#include "tests/ab/suite_json.h"

namespace clustar::bench::ab::suite {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

constexpr int kRounds = 10;

struct Figures {
  double step_s = 0.1;
  double to_target_s = 10;
  double accuracy = 0.95;
  double missing = 0;
};

json run_of(const std::string& arm, int round, const Figures& figures) {
  json steps = json::array();
  for (int i = 0; i < 100; ++i) steps.push_back(figures.step_s * (i == 99 ? 5 : 1));
  return {
      {"arm", arm},
      {"round", round},
      {"seed", round},
      {"images_per_second", 100 / figures.step_s},
      {"train_s", 100 * figures.step_s},
      {"steps", 100},
      {"accuracy", figures.accuracy},
      {"time_to_target_s", figures.to_target_s > 0 ? json(figures.to_target_s) : json(nullptr)},
      {"replicas_identical", true},
      {"missing_bytes", figures.missing},
      {"eligible_bytes", 1e6},
      {"delivered_bytes", 2e6},
      {"worst_charge", 0.004},
      {"loss_bound", 0.01},
      {"per_epoch", {{"accuracy", {0.5, figures.accuracy}}, {"train_s", {50 * figures.step_s, 50 * figures.step_s}}}},
      {"curve", {{"step", {50, 100}}, {"loss", {2.0, 1.0}}, {"train_s", {50 * figures.step_s, 100 * figures.step_s}}}},
      {"step_seconds", steps},
      {"switch_lost_on_purpose", 7},
      {"super_packets", 0}};
}

json scenario_of(const std::string& name, const std::vector<std::string>& carriers, double slower) {
  json scenario{{"name", name},
                {"title", "title of " + name},
                {"question", "why?"},
                {"ranks", 8},
                {"rate_bps", 2e8},
                {"fabric", "200M per port"},
                {"notes", {"note"}},
                {"background", nullptr},
                {"place", {{"text", "a place"}, {"proof", {{"per_packet", true}}}}},
                {"losses", name == "clean" ? json::array() : json::array({"h1: loss 1%"})},
                {"problems", json::array()},
                {"arms", json::array()},
                {"runs", json::array()}};
  for (const char* algorithm : {"ring", "all-to-all"}) {
    for (const std::string& carrier : carriers) {
      const std::string arm = carrier + "/" + algorithm;
      scenario["arms"].push_back({{"name", arm},
                                  {"carrier", carrier},
                                  {"algorithm", algorithm},
                                  {"label", "<" + carrier + ">"},
                                  {"settings", {{"CLUSTAR_TRANSPORT", "x"}}},
                                  {"rto_min_us", 0},
                                  {"train_arguments", json::array()},
                                  {"left_out", nullptr}});
      for (int round = 1; round <= kRounds; ++round) {
        const double drift = 1 + 0.1 * round;  // a machine that gets slower: the same for all of a round
        Figures figures{0.1 * drift * slower, 10 * drift * slower, 0.95, 0};
        if (carrier.starts_with("mlt")) figures.step_s /= 1.25, figures.to_target_s /= 1.25;
        if (carrier == "tcp-cubic-rto5") figures.to_target_s *= 1.5;
        if (carrier == "mlt-p1") figures.accuracy -= 0.0008 * round, figures.missing = name == "clean" ? 0 : 4000;
        scenario["runs"].push_back(run_of(arm, round, figures));
      }
    }
  }
  return scenario;
}

json training_of(const std::vector<std::string>& carriers, bool target = true) {
  json training = empty_training(kRounds, target);
  for (const auto& [name, slower] : {std::pair("clean", 1.0), {"gray", 2.0}, {"bursts", 1.03}}) {
    training["scenarios"].push_back(scenario_of(name, carriers, slower));
  }
  return training;
}

const std::vector<std::string> kAll{"tcp-cubic", "tcp-cubic-rto5", "tcp-bbr-rto5", "mlt-p0", "mlt-p1"};

const json& figure(const json& training, std::size_t scenario, const std::string& arm) {
  return *find_named(training["scenarios"][scenario]["figures"], arm);
}

TEST(SuiteMean, IsStudents) {
  const std::array<double, 4> values{1, 2, 3, 4};
  const auto estimate = mean_estimate(values);
  ASSERT_TRUE(estimate);
  EXPECT_DOUBLE_EQ(estimate->mean, 2.5);
  EXPECT_NEAR(estimate->low, 2.5 - 3.182 * 1.2909944 / 2, 1e-6);
  EXPECT_NEAR(estimate->high, 2.5 + 3.182 * 1.2909944 / 2, 1e-6);
  EXPECT_FALSE(mean_estimate(std::array<double, 1>{1}));
}

TEST(SuiteFigures, AreRatiosInPairs) {
  json training = training_of(kAll);
  judge(training);
  const json& p0 = figure(training, 1, "mlt-p0/ring");
  EXPECT_EQ(p0["reference"], "tcp-bbr-rto5/ring") << "the sooner of the two with a short rto_min";
  EXPECT_NEAR(p0["time_ratio"]["ratio"].get<double>(), 1.25, 1e-9) << "what slows a whole round is no difference";
  EXPECT_NEAR(p0["time_ratio"]["low"].get<double>(), 1.25, 1e-9);
  EXPECT_NEAR(p0["step_ratio"]["ratio"].get<double>(), 1.25, 1e-9);
  EXPECT_NEAR(p0["growth"]["ratio"].get<double>(), 2.0, 1e-9);
  EXPECT_TRUE(figure(training, 0, "mlt-p0/ring")["growth"].is_null());
  EXPECT_TRUE(p0["accuracy_difference"].is_null());
  EXPECT_GT(p0["step_p99_ms"], p0["step_p50_ms"]);
  const json& p1 = figure(training, 1, "mlt-p1/ring");
  EXPECT_NEAR(p1["accuracy_difference"]["mean"].get<double>(), -0.0044, 1e-9);
  EXPECT_LT(p1["accuracy_difference"]["low"].get<double>(), -0.005);
  EXPECT_NEAR(p1["missing_share"].get<double>(), 0.004, 1e-9);
  EXPECT_EQ(p1["missing_in_every_run"], true);
  EXPECT_EQ(p1["within_ledger"], true);
  EXPECT_EQ(p1["switch_lost_on_purpose"], 7 * kRounds);
}

const json* bar_of(const json& training, const std::string& scenario, const std::string& arm, const std::string& what) {
  for (const json& bar : training["bars"]) {
    if (bar["scenario"] == scenario && bar["arm"] == arm &&
        bar["what"].get<std::string>().find(what) != std::string::npos) {
      return &bar;
    }
  }
  return nullptr;
}

TEST(SuiteBars, AreMetOrMissed) {
  json training = training_of(kAll);
  judge(training);
  const auto met = [&](const char* scenario, const char* arm, const char* what) {
    const json* bar = bar_of(training, scenario, arm, what);
    return bar == nullptr ? json("no such bar") : (*bar)["met"];
  };
  EXPECT_EQ(met("gray", "mlt-p0/ring", "1.1 times"), true);
  EXPECT_EQ(met("gray", "mlt-p0/all-to-all", "1.3 times"), false);
  EXPECT_EQ(met("clean", "mlt-p1/ring", "0.97 times"), true);
  EXPECT_EQ(met("bursts", "mlt-p1/ring", "5 %"), true);
  EXPECT_EQ(met("gray", "mlt-p1/ring", "0.5 points"), json(nullptr)) << "runs end at the target";
  EXPECT_EQ(met("gray", "mlt-p1/ring", "something is missing"), true);
  EXPECT_EQ(met("clean", "mlt-p1/ring", "within the ledger"), true);
  EXPECT_THAT((*bar_of(training, "bursts", "mlt-p0/ring", "5 %"))["text"].get<std::string>(),
              HasSubstr("tcp-cubic-rto5 1.030"));
}

TEST(SuiteBars, WhatThisMachineCannotRunIsNeither) {
  json training = training_of({"tcp-cubic-rto5", "mlt-p0"});
  for (json& scenario : training["scenarios"]) {
    json kept = json::array();
    for (json& run : scenario["runs"]) {
      if (run["arm"] == "mlt-p0/all-to-all") run["failed"] = "rank 1 died", run["unavailable"] = true;
      kept.push_back(run);
    }
    scenario["runs"] = kept;
    (*const_cast<json*>(find_named(scenario["arms"], "mlt-p0/all-to-all")))["left_out"] = "rank 1 died";
  }
  judge(training);
  EXPECT_EQ(find_named(training["scenarios"][1]["figures"], "mlt-p0/all-to-all"), nullptr);
  const json* bar = bar_of(training, "gray", "mlt-p0/all-to-all", "1.3 times");
  ASSERT_NE(bar, nullptr);
  EXPECT_TRUE((*bar)["met"].is_null());
  EXPECT_EQ((*bar)["text"], "not measured");
  EXPECT_THAT(training["warnings"].dump(), HasSubstr("gray: mlt-p0/all-to-all was left out: rank 1 died"));
}

TEST(SuiteFigures, WithoutATargetStepsAreCompared) {
  json training = training_of(kAll, false);
  for (json& scenario : training["scenarios"]) {
    for (json& run : scenario["runs"]) run["time_to_target_s"] = nullptr;
  }
  judge(training);
  EXPECT_TRUE(figure(training, 1, "mlt-p0/ring")["time_ratio"].is_null());
  EXPECT_EQ((*bar_of(training, "gray", "mlt-p0/ring", "equal steps"))["met"], true);
}

TEST(SuiteFigures, GiveTheContractsRows) {
  json training = training_of(kAll);
  judge(training);
  const json rows = comparisons(training);
  EXPECT_EQ(rows.size(), 3u * 2 * 4) << "all but the reference";
  for (const json& row : rows) {
    for (const char* key : {"model", "baseline", "candidate", "images_per_second_a", "images_per_second_b", "ratio",
                            "ratio_low", "ratio_high", "time_to_accuracy_ratio", "ceiling_ratio"}) {
      EXPECT_TRUE(row.contains(key)) << key;
    }
  }
}

json document_of(const json& training) {
  return {{"command", "ab"}, {"version", "0"}, {"machine", {{"cpu", "x"}}}, {"training", training}};
}

TEST(SuitePage, IsOneFileWithEverything) {
  json training = training_of(kAll);
  judge(training);
  const std::string text = page(document_of(training));
  EXPECT_THAT(text, HasSubstr(report::page_style())) << "the look of all pages";
  for (const char* outside : {"http:", "https:", "<script", "<link", "src=", "@import", "url("}) {
    EXPECT_THAT(text, Not(HasSubstr(outside)));
  }
  for (const char* inside : {"Training loss over training time (ring)", "Training loss by step (all-to-all)",
                             "Held-out accuracy over training time", "Duration of a step", "Gradient bytes missing",
                             "How many times sooner", "not met", "title of gray", "&lt;mlt-p1&gt;", "h1: loss 1%"}) {
    EXPECT_THAT(text, HasSubstr(inside));
  }
  EXPECT_THAT(text, Not(HasSubstr("<mlt-p1>"))) << "text is escaped";
  EXPECT_THAT(text, Not(HasSubstr("nan")));
}

TEST(SuitePage, StandsAScenarioWithoutRuns) {
  json training = training_of(kAll);
  training["scenarios"][2]["runs"] = json::array();
  training["scenarios"][2]["problems"] = {"no switch program"};
  judge(training);
  EXPECT_THAT(page(document_of(training)), HasSubstr("Not measured: no switch program"));
  EXPECT_THAT(table(training), HasSubstr("warning: bursts: no switch program"));
}

TEST(SuiteTable, HasALinePerArmAndTheBars) {
  json training = training_of(kAll);
  judge(training);
  const std::string text = table(training);
  for (const char* inside : {"mlt-p1/all-to-all", "the reference", "1.250 (1.250 to 1.250)", "NOT MET", "0.40 %"}) {
    EXPECT_THAT(text, HasSubstr(inside));
  }
  EXPECT_THAT(run_line(training["scenarios"][0]["runs"][0], 1, 9, 600), HasSubstr("[1/9] round 1 tcp-cubic/ring"));
}

// Clean lines 0.1 s times the round's drift, gray ones twice that; MLT is 1.25 times as fast in either.
TEST(CapturedGain, IsOfWhatTroubleCosts) {
  json training = training_of(kAll);
  const json gains = captured_gains(training);
  const json* ring = nullptr;
  for (const json& one : gains) {
    EXPECT_NE(one["scenario"], "clean");
    EXPECT_TRUE(one["arm"].get<std::string>().starts_with("mlt")) << one;
    if (one["scenario"] == "gray" && one["arm"] == "mlt-p0/ring") ring = &one;
  }
  ASSERT_NE(ring, nullptr) << gains;
  // Round r: tcp 0.2 (1 + r/10), MLT that by 1.25, and the median of clean lines 0.1 x 1.55.
  const auto gain = [](int r) {
    const double tcp = 0.2 * (1 + 0.1 * r);
    return (tcp - tcp / 1.25) / (tcp - 0.1 * 1.55);
  };
  EXPECT_NEAR((*ring)["gain"].get<double>(), (gain(5) + gain(6)) / 2, 1e-9);
  EXPECT_NEAR((*ring)["low"].get<double>(), gain(10), 1e-9);
  EXPECT_NEAR((*ring)["high"].get<double>(), gain(1), 1e-9);
  EXPECT_EQ((*ring)["rounds"], kRounds);
  EXPECT_EQ((*ring)["limit"], 0.75);
  EXPECT_EQ((*ring)["met"], false);
  EXPECT_GE((*ring)["interval_low"], (*ring)["low"]);
  EXPECT_LT((*ring)["interval_low"], (*ring)["gain"]);
  EXPECT_GT((*ring)["interval_high"], (*ring)["gain"]);
  EXPECT_THAT(captured_text(gains), HasSubstr("at least 0.75: NOT MET"));
}

// Of the gray link's ring, whose gains fall from 0.68 to 0.33 from round to round, by the first `rounds`.
json gray_ring(int rounds, double faster = 1) {
  json training = training_of(kAll);
  training["options"]["rounds"] = rounds;
  for (json& scenario : training["scenarios"]) {
    std::erase_if(scenario["runs"].get_ref<json::array_t&>(), [&](const json& run) { return run["round"] > rounds; });
    for (json& run : scenario["runs"]) {
      if (run["arm"] == "mlt-p0/ring") run["train_s"] = run["train_s"].get<double>() / faster;
    }
  }
  for (const json& one : captured_gains(training)) {
    if (one["scenario"] == "gray" && one["arm"] == "mlt-p0/ring") return one;
  }
  return {};
}

TEST(CapturedGain, IsNoVerdictBelowFiveRounds) {
  for (const int few : {1, 4}) {
    const json one = gray_ring(few, 2);
    EXPECT_GT(one["gain"], 0.75);
    EXPECT_TRUE(one["met"].is_null()) << one;
    EXPECT_TRUE(one["interval_low"].is_null());
    EXPECT_EQ(one["verdict"], "no verdict: " + std::to_string(few) + " of 5 rounds");
    EXPECT_THAT(captured_text(json::array({one})), HasSubstr("at least 0.75: no verdict"));
  }
  EXPECT_EQ(gray_ring(5, 2)["verdict"], "met");
}

TEST(CapturedGain, IsMetByTheLowEndOfItsInterval) {
  for (const double faster : {1.0, 1.2, 1.3, 1.4, 2.0}) {
    const json one = gray_ring(kRounds, faster);
    EXPECT_EQ(one["met"], one["interval_low"] >= 0.75) << one;
    EXPECT_EQ(one["verdict"] == "NOT MET", one["interval_high"] < 0.75) << one;
  }
  const json open = gray_ring(kRounds, 1.3);
  EXPECT_GT(open["gain"], 0.75) << "more than the bar by its median";
  EXPECT_EQ(open["verdict"], "not shown: the interval includes it");
}

TEST(CapturedGain, NeedsCleanLinesAndATunedTcp) {
  json training = training_of(kAll);
  training["scenarios"].erase(0);
  EXPECT_TRUE(captured_gains(training).empty());
  EXPECT_EQ(captured_text(captured_gains(training)), "");
  EXPECT_TRUE(captured_gains(training_of({"tcp-cubic", "mlt-p0"})).empty());
  // Without a round there is no verdict.
  json cut = training_of(kAll);
  std::erase_if(cut["scenarios"][1]["runs"].get_ref<json::array_t&>(),
                [](const json& run) { return run["round"] == 4 && run["arm"] == "mlt-p0/ring"; });
  for (const json& one : captured_gains(cut)) {
    if (one["scenario"] == "gray" && one["arm"] == "mlt-p0/ring") {
      EXPECT_TRUE(one["met"].is_null());
    }
  }
}

}  // namespace
}  // namespace clustar::bench::ab::suite
