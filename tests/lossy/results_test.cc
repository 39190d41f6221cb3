#include "bench/lossy/results.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "bench/lossy/suite.h"
#include "bench/lossy/table.h"

namespace clustar::bench::lossy {
namespace {

using nlohmann::json;

ArmOutcome measured(const std::string& name, std::vector<std::vector<double>> blocks) {
  ArmOutcome arm;
  arm.samples.name = name;
  arm.label = "the label of " + name;
  arm.transport = "tcp";
  for (const auto& block : blocks) {
    arm.message_ms.insert(arm.message_ms.end(), block.begin(), block.end());
    for (const double ms : block) arm.seconds += ms / 1e3;
  }
  arm.samples.block_ms = std::move(blocks);
  arm.delivered_bytes = 1'000'000;
  arm.cpu_s = 0.004;
  arm.retransmitted = 7;
  return arm;
}

ScenarioOutcome outcome() {
  ScenarioOutcome out;
  out.scenario = scenarios(false).front();
  out.rounds = 4;
  out.ideal_ms = 9;
  out.seed = 5;
  out.delay_mode = "queueing only";
  out.stalls_known = true;
  out.notes = {"a note"};
  out.arms.push_back(measured("mlt-p0", {{10, 10}, {10, 11}}));
  out.arms.push_back(measured("tcp-bbr", {{40, 50}, {60, 50}}));
  out.arms[0].switches.to_receiver = {.packets = 10, .dropped_buffer = 3, .deepest_bytes = 900};
  out.arms[1].switches.to_receiver = {.packets = 20, .deepest_bytes = 400};
  ArmOutcome skipped;
  skipped.samples.name = "mlt-p1";
  skipped.skipped = "this build cannot";
  out.arms.push_back(skipped);
  ArmOutcome failed = measured("tcp-cubic", {{10}});
  failed.failure = "its receiver was killed by signal 9";
  out.arms.push_back(failed);
  return out;
}

TEST(LossyResults, HaveTheKeysThatPlotsAreMadeFrom) {
  const json scenario = to_json(outcome());
  for (const char* key :
       {"name", "title", "question", "fabric", "message_bytes", "senders", "messages", "rounds", "ideal_ms",
        "one_way_ms", "delay_mode", "arms", "bars", "notes", "switch", "bucket_ms", "other_cpu"}) {
    EXPECT_TRUE(scenario.contains(key)) << key;
  }
  for (const char* key : {"hosts", "rate_bps", "mtu", "buffer_bytes", "topology", "rules"}) {
    EXPECT_TRUE(scenario["fabric"].contains(key)) << key;
  }
  EXPECT_EQ(scenario["fabric"]["buffer_bytes"], 125'000) << "5 ms of 200 Mbit/s";
  EXPECT_EQ(scenario["fabric"]["ecn_marks_above_bytes"], 37'500);
  const json& rules = scenario["fabric"]["rules"];
  ASSERT_EQ(rules.size(), 2u) << rules;
  EXPECT_EQ(rules[0]["port"], "h0");
  EXPECT_EQ(rules[0]["loss"], "loss 1%, all classes marked above 37500 B");
  EXPECT_EQ(rules[1]["port"], "every other port");
  EXPECT_EQ(rules[1]["loss"], "all classes marked above 37500 B");
  EXPECT_EQ(rules[0]["rules"]["seed"], 5);
  const json& arm = scenario["arms"][0];
  for (const char* key : {"name",
                          "label",
                          "transport",
                          "rounds",
                          "p50_ms",
                          "p90_ms",
                          "p99_ms",
                          "p999_ms",
                          "mean_ms",
                          "min_ms",
                          "max_ms",
                          "message_p99_ms",
                          "cdf",
                          "goodput_gbps",
                          "lost_packets",
                          "delivered_bytes",
                          "missing_bytes",
                          "eligible_bytes",
                          "cpu_s_per_gbit",
                          "blocks",
                          "retransmitted",
                          "indicative",
                          "machine_cpu_s_per_gbit",
                          "host_drops"}) {
    EXPECT_TRUE(arm.contains(key)) << key;
  }
  EXPECT_EQ(arm["rounds"], 4);
  EXPECT_EQ(arm["p99_ms"], 11);
  EXPECT_EQ(arm["blocks"], json({10, 10}));
  EXPECT_NEAR(arm["goodput_gbps"].get<double>(), 0.008 / 0.041, 1e-9);
  EXPECT_NEAR(arm["cpu_s_per_gbit"].get<double>(), 0.5, 1e-9);
  EXPECT_EQ(arm["retransmitted"], 7);
  EXPECT_EQ(arm["switch"]["deepest_bytes"], 900);
  EXPECT_EQ(scenario["switch"]["packets"], 30) << "of all arms";
  EXPECT_EQ(scenario["switch"]["deepest_bytes"], 900) << "the largest";
  EXPECT_EQ(scenario["switch"]["dropped_buffer"], 3);
  EXPECT_EQ(scenario["notes"].back(), "a note");
  EXPECT_LE(arm["cdf"].size(), 200u);
}

TEST(LossyResults, BarsSayFigureLimitAndSpread) {
  const json scenario = to_json(outcome());
  for (const json& bar : scenario["bars"]) {
    EXPECT_NE(bar.contains("at_least"), bar.contains("at_most")) << bar;
    EXPECT_TRUE(bar.contains("text") && bar.contains("figure") && bar.contains("met")) << bar;
    EXPECT_EQ(bar["figure"].is_null(), bar["met"].is_null()) << bar;
  }
  const json& bbr = scenario["bars"][2];
  EXPECT_NEAR(bbr["figure"].get<double>(), 60.0 / 11, 1e-9);
  EXPECT_EQ(bbr["met"], true);
  EXPECT_TRUE(scenario["bars"][1]["figure"].is_null()) << "mlt-p1 was not measured";
}

// What it measured before it failed may look good.
TEST(LossyResults, AFailedArmMeetsNoBar) {
  ScenarioOutcome with_failure = outcome();
  with_failure.arms[0].failure = "a message did not end in time";
  const json scenario = to_json(with_failure);
  for (const json& bar : scenario["bars"]) {
    EXPECT_TRUE(bar["figure"].is_null() && !bar["met"].is_boolean()) << bar;
  }
}

TEST(LossyResults, TheTableNamesWhatIsMissing) {
  const std::string text = table(to_json(outcome()));
  EXPECT_NE(text.find("not measured: this build cannot"), std::string::npos) << text;
  EXPECT_NE(text.find("FAILED: its receiver was killed by signal 9"), std::string::npos) << text;
  EXPECT_NE(text.find("at least 4: met"), std::string::npos) << text;
}

TEST(LossyResults, FailuresAreListedButNotWhatCannotBeMeasuredHere) {
  const auto failed = failures({{"scenarios", json::array({to_json(outcome())})}});
  ASSERT_EQ(failed.size(), 1u);
  EXPECT_EQ(failed[0], "loss/tcp-cubic: its receiver was killed by signal 9");
}

TEST(LossyResults, WhatWasNamedAndIsMeasuredNowhereIsAFailure) {
  json with = to_json(outcome());
  const std::string arm = "--arms mlt-p1: not measured: this build cannot";
  EXPECT_THAT(failures({{"scenarios", json::array({with})}}, {{}, {"mlt-p1"}}), testing::Contains(arm));
  // Measured in another scenario; as one of two jobs; left out with its scenario.
  json other{{"name", "incast"}, {"arms", json::array({json{{"name", "mlt-p1+tcp-cubic"}}})}};
  EXPECT_THAT(failures({{"scenarios", json::array({with, other})}}, {{}, {"mlt-p1", "tcp-cubic"}}),
              testing::Not(testing::Contains(arm)));
  const json skipped{{"name", "bad-path"}, {"arms", json::array()}, {"skipped", "no spines here"}};
  EXPECT_THAT(failures({{"scenarios", json::array({skipped})}}, {{"bad-path"}, {}}),
              testing::ElementsAre("--scenario bad-path: not measured: no spines here"));
  EXPECT_TRUE(failures({{"scenarios", json::array({skipped})}}).empty());
  // Its own reason goes before that of a scenario; all arms left out; none of the arms.
  EXPECT_THAT(failures({{"scenarios", json::array({with, skipped})}}, {{}, {"mlt-p1"}}), testing::Contains(arm));
  const json idle{{"name", "cpu"}, {"arms", json::array({json{{"name", "mlt-p1"}, {"skipped", "no driver"}}})}};
  EXPECT_THAT(failures({{"scenarios", json::array({idle})}}, {{"cpu"}, {}}),
              testing::ElementsAre("--scenario cpu: not measured: no driver"));
  EXPECT_THAT(failures({{"scenarios", json::array({other})}}, {{"incast", "cpu"}, {"mlt-p1"}}),
              testing::ElementsAre("--scenario cpu: not measured: it has none of the arms that are named"));
  // Who ended it early knows why it is not there.
  EXPECT_EQ(
      failures({{"scenarios", json::array()}, {"ended_by", "interrupted"}, {"unfinished", {"loss"}}}, {{}, {"mlt-p1"}})
          .size(),
      1u);
}

TEST(LossyResults, PercentilesOfFewRoundsAreIndicativeAndOneInAThousandIsNone) {
  ScenarioOutcome out = outcome();
  const json few = to_json(out);
  EXPECT_EQ(few["arms"][0]["indicative"], true);
  EXPECT_TRUE(few["arms"][0]["p999_ms"].is_null());
  EXPECT_NE(table(few).find("percentiles are indicative"), std::string::npos) << table(few);
  EXPECT_NE(table(few).find("met (indicative)"), std::string::npos) << table(few);
  out.arms = {measured("mlt-p0", {std::vector<double>(1000, 10)})};
  const json many = to_json(out);
  EXPECT_EQ(many["arms"][0]["indicative"], false);
  EXPECT_EQ(many["arms"][0]["p999_ms"], 10);
  EXPECT_EQ(table(many).find("indicative"), std::string::npos) << table(many);
}

TEST(LossyResults, AVoidBarIsNeitherMetNorMissed) {
  ScenarioOutcome out = outcome();
  out.backstop_drops = 2;
  const json scenario = to_json(out);
  const json& bar = scenario["bars"][2];
  EXPECT_TRUE(bar["met"].is_null()) << bar;
  EXPECT_TRUE(bar["figure"].is_number()) << bar;
  EXPECT_NE(bar["void_because"].get<std::string>().find("2 packets"), std::string::npos) << bar;
  EXPECT_NE(table(scenario).find("VOID: 2 packets"), std::string::npos) << table(scenario);
}

TEST(LossyResults, SubflowsThatAreNotKnownAreNotTakenForSome) {
  ScenarioOutcome out = outcome();
  out.scenario.notes.clear();
  out.notes.clear();
  out.arms = {measured("mptcp", {{10}})};
  const auto notes = [&](const json& sender) {
    out.arms[0].facts = json::array({{{"job", "mptcp"}, {"sender", sender}}});
    return to_json(out)["notes"].dump();
  };
  EXPECT_NE(notes({{"congestion", "cubic"}}).find("may be plain TCP"), std::string::npos);
  EXPECT_NE(notes({{"subflows", nullptr}}).find("may be plain TCP"), std::string::npos);
  EXPECT_NE(notes({{"subflows", 1}}).find("one subflow only"), std::string::npos);
  EXPECT_EQ(notes({{"subflows", 4}}), "[]");
  out.arms[0].facts = json::array({{{"job", "tcp-cubic"}, {"sender", {{"congestion", "cubic"}}}}});
  EXPECT_EQ(to_json(out)["notes"], json::array()) << "TCP has none";
}

TEST(LossyResults, DropsThatNoRuleAskedForAreNoted) {
  ScenarioOutcome out = outcome();
  out.arms[1].interface_drops = 4;
  out.arms[1].samples.softnet_drops = 1;
  const json scenario = to_json(out);
  EXPECT_EQ(scenario["arms"][1]["host_drops"], json({{"interfaces", 4}, {"softnet", 1}}));
  const std::string note = scenario["notes"].back();
  EXPECT_NE(note.find("tcp-bbr: 4 packets were dropped by the hosts' interfaces and 1 "), std::string::npos) << note;
}

TEST(LossyResults, TheSwitchSaysHowLargeItsLargestPacketWas) {
  ScenarioOutcome out = outcome();
  out.arms[0].switches.to_receiver.largest_bytes = 1514;
  EXPECT_EQ(to_json(out)["arms"][0]["switch"]["largest_bytes"], 1514);
  EXPECT_EQ(to_json(out)["switch"]["largest_bytes"], 1514);
}

TEST(LossyResults, WhoEndedEarlySaysWhatWasNotMeasured) {
  const auto failed =
      failures({{"scenarios", json::array()}, {"ended_by", "interrupted"}, {"unfinished", {"incast", "cpu"}}});
  ASSERT_EQ(failed.size(), 1u);
  EXPECT_EQ(failed[0], "interrupted; complete and kept: 0 scenarios, not measured: incast, cpu");
}

TEST(LossyResults, SharesOfJobs) {
  ScenarioOutcome out;
  out.scenario = choose_scenarios({"shared"}, false)->front();
  ArmOutcome arm = measured("mlt-p0+tcp-cubic", {{1000}});
  arm.samples.block_shares = {
      {{{"mlt-p0", 0.05, 0.5}, {"tcp-cubic", 0.15, 1.5}}, {{"mlt-p0", 0.07, 0.7}, {"tcp-cubic", 0.13, 1.3}}}};
  out.arms.push_back(arm);
  const json scenario = to_json(out);
  const json& jobs = scenario["arms"][0]["jobs"];
  ASSERT_EQ(jobs.size(), 2u);
  EXPECT_EQ(jobs[1]["name"], "tcp-cubic");
  EXPECT_NEAR(jobs[1]["share_of_fair"].get<double>(), 1.4, 1e-9) << "of both rounds of the block";
  EXPECT_EQ(jobs[1]["share_by_round"], json({1.5, 1.3}));
  EXPECT_EQ(scenario["bars"][0]["figure"], 0.5);
  EXPECT_EQ(scenario["bars"][0]["met"], true);
}

TEST(LossyResults, StalledRoundsDoNotCountAndAreTold) {
  ScenarioOutcome out = outcome();
  out.scenario.bars = {
      {.kind = BarSpec::Kind::kP99OverP50, .arm = "mlt-p0", .other = "", .limit = 1.15, .at_least = false}};
  out.arms[0].samples.stalled_ms = {30, 140};
  const json scenario = to_json(out);
  const json& arm = scenario["arms"][0];
  EXPECT_EQ(arm["rounds"], 4);
  EXPECT_EQ(arm["p99_ms"], 11);
  EXPECT_EQ(arm["stalled_rounds"], 2);
  EXPECT_EQ(arm["p99_with_stalls_ms"], 140);
  EXPECT_EQ(scenario["bars"][0]["met"], true);
  EXPECT_NEAR(scenario["bars"][0]["figure_with_stalls"].get<double>(), 14, 0.01);
  const std::string note = scenario["notes"].back();
  EXPECT_NE(note.find("mlt-p0 2 rounds, p99 140.00 ms"), std::string::npos) << note;
  EXPECT_EQ(note.find("tcp-bbr"), std::string::npos) << note;
  EXPECT_NE(table(scenario).find("14.000 with stalled rounds"), std::string::npos);

  out.stalls_known = false;
  EXPECT_NE(to_json(out)["notes"].dump().find("SCHED_FIFO"), std::string::npos);
}

}  // namespace
}  // namespace clustar::bench::lossy
