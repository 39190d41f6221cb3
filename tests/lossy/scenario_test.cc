#include "bench/lossy/scenario.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "bench/lossy/arm.h"
#include "bench/lossy/experiment.h"
#include "bench/lossy/suite.h"

namespace clustar::bench::lossy {
namespace {

TEST(LossyScenario, EachIsSound) {
  std::set<std::string> names;
  for (const Scenario& scenario : scenarios(true)) {
    EXPECT_TRUE(names.insert(scenario.name).second) << scenario.name;
    EXPECT_FALSE(scenario.question.empty()) << scenario.name;
    EXPECT_GT(scenario.expected_ms, 0) << scenario.name;
    const auto spec = lossy_fabric(scenario, "x", 7);
    EXPECT_TRUE(spec) << scenario.name << ": " << spec.error().message;
    std::set<std::string> arms(scenario.arms.begin(), scenario.arms.end());
    for (const std::string& name : scenario.arms) {
      const auto jobs = jobs_of(name);
      for (const std::string& job : jobs) EXPECT_TRUE(find_arm(job)) << job;
      EXPECT_GT(scenario.fabric.hosts, static_cast<int>(jobs.size()) * scenario.senders) << scenario.name;
    }
    for (const std::string& quick : scenario.quick_arms) EXPECT_TRUE(arms.contains(quick)) << quick;
    for (const BarSpec& bar : scenario.bars) EXPECT_TRUE(arms.contains(bar.arm)) << bar.arm;
  }
}

// A user who may not run it does not want to know how long it would take.
TEST(LossySuite, WithoutRootItSaysSoBeforeAnythingElse) {
  const uid_t before = geteuid();
  const bool is_root = before == 0;
  ASSERT_EQ(is_root ? seteuid(65534) : 0, 0);
  std::vector<std::string> said;
  const auto result = run_suite({.scenarios = {"loss"}, .quick = true},
                                {.progress = [&](const std::string& line) { said.push_back(line); }, .scenario = {}});
  ASSERT_EQ(is_root ? seteuid(before) : 0, 0);
  ASSERT_FALSE(result);
  EXPECT_NE(result.error().message.find("needs root"), std::string::npos) << result.error().message;
  EXPECT_TRUE(said.empty()) << said.front();
}

TEST(LossyScenario, PercentilesComeFromAThousandRounds) {
  for (const Scenario& scenario : scenarios(false)) {
    for (const BarSpec& bar : scenario.bars) {
      const bool quotes = bar.kind != BarSpec::Kind::kCpuOver && bar.kind != BarSpec::Kind::kShare;
      EXPECT_GE(scenario.rounds, quotes ? 1000 : 1) << scenario.name;
    }
  }
}

// What differs in nothing but what it does about losses has no place where none are; a second path is in bad-path
// alone.
TEST(LossyScenario, ArmsAreWhereTheyMakeSense) {
  const std::vector<std::string> everywhere{"tcp-cubic", "tcp-bbr", "tcp-cubic-rto5", "tcp-bbr-rto5", "clustar-tcp",
                                            "mlt-p0",    "mlt-p1",  "mlt-gbn",        "mlt-deadline"};
  for (const char* name : {"loss", "incast", "micro-bursts", "bad-path", "loss-0", "loss-5"}) {
    const Scenario scenario = choose_scenarios({name}, true)->front();
    const std::set<std::string> arms(scenario.arms.begin(), scenario.arms.end());
    for (const std::string& arm : everywhere) EXPECT_TRUE(arms.contains(arm)) << name << " has no " << arm;
    EXPECT_EQ(arms.contains("mptcp"), scenario.fabric.spines > 0) << name;
    EXPECT_EQ(arms.contains("mlt-1path"), scenario.fabric.spines > 0) << name;
  }
}

TEST(LossyScenario, AQuickRunTakesAboutAMinute) {
  double seconds = 0;
  lossy::Run run;
  run.quick = true;
  for (const Scenario& scenario : scenarios(false)) seconds += estimated_seconds(scenario, run);
  EXPECT_LT(seconds, 90);
}

TEST(LossyScenario, NamesChoose) {
  const auto two = choose_scenarios({"cpu", "loss-5"}, false);
  ASSERT_TRUE(two);
  ASSERT_EQ(two->size(), 2u);
  EXPECT_EQ(two->front().name, "cpu");
  EXPECT_DOUBLE_EQ(two->back().losses.front().rules.random, 0.05);
  const auto wrong = choose_scenarios({"lost"}, false);
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(wrong.error().message.find("micro-bursts"), std::string::npos) << "names what there is";
  EXPECT_FALSE(find_arm("tcp"));
}

TEST(LossyScenario, ArmsByDpdkRunOnlyWhereTheyAreNamed) {
  const auto loss = choose_scenarios({"loss"}, false);
  ASSERT_TRUE(loss);
  lossy::Run run;
  EXPECT_EQ(arms_of(loss->front(), run), loss->front().arms);
  EXPECT_EQ(std::ranges::count(loss->front().arms, "mlt-p0-dpdk"), 0);
  run.arms = {"mlt-p0", "mlt-p0-dpdk"};
  EXPECT_EQ(arms_of(loss->front(), run), run.arms);
  run.quick = true;
  EXPECT_EQ(arms_of(loss->front(), run), run.arms);
}

TEST(LossyScenario, AnArmIsChosenByAnyOfItsJobs) {
  EXPECT_EQ(jobs_of("a+b"), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(jobs_of("a"), std::vector<std::string>{"a"});
  EXPECT_EQ(choose_arms({"a", "a+b", "c"}, {"b", "c"}), (std::vector<std::string>{"a+b", "c"}));
  EXPECT_EQ(choose_arms({"a", "b"}, {}), (std::vector<std::string>{"a", "b"}));
}

TEST(LossyScenario, TheIdealCountsEveryFrameAndOneWayTime) {
  // MTU 1500: 1500 - 20 - 8 - 38 - 63 in multiples of 8 is 1368.
  EXPECT_EQ(mlt_wire_bytes(1368, 1500), 1368u + 38 + 8 + 20 + 14 + 63);
  EXPECT_EQ(mlt_wire_bytes(1369, 1500), 1369u + 2 * (38 + 8 + 20 + 14) + 63);
  Scenario scenario;
  scenario.fabric.rate_bps = 8'000'000;  // a byte per microsecond
  scenario.message_bytes = 1368;
  scenario.senders = 2;
  EXPECT_NEAR(ideal_ms(scenario, 0.5), 2 * 1.511 + 0.5, 1e-9);
}

TEST(LossyScenario, EveryPortMarksAndOnlyTheScenariosPortsLose) {
  const Scenario scenario = choose_scenarios({"bad-path"}, false)->front();
  const auto clean = clean_fabric(scenario, "x");
  const auto spec = lossy_fabric(scenario, "x", 7);
  ASSERT_TRUE(clean && spec);
  EXPECT_EQ(spec->rules.ports.size(), 18u) << "8 links between switches and 2 to hosts";
  for (const auto& [place, rules] : spec->rules.ports) {
    const bool bad = place.starts_with("spine0:");
    EXPECT_NEAR(rules.to_host.random, bad ? 0.05 : 0, 1e-9) << place;
    EXPECT_EQ(rules.seed, bad ? 7u : 1u) << place;
    EXPECT_EQ(rules.classes[3].mark_min_bytes, 37'500u) << "30 % of 125 kB";
    EXPECT_EQ(clean->rules.of(place).to_host, fabric::LossRules()) << place;
  }
}

TEST(LossyScenario, MicroBurstsAreThoseOfTheIssue) {
  const auto spec = lossy_fabric(choose_scenarios({"micro-bursts"}, false)->front(), "x", 1);
  ASSERT_TRUE(spec);
  EXPECT_EQ(describe(spec->rules.of("h0")),
            "bursts of 5 to 50 ms every 400 ms and up to 350 ms later with 60% to 90% loss, all classes marked above "
            "37500 B");
}

}  // namespace
}  // namespace clustar::bench::lossy
