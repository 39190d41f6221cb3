// The table of what was reported in 2018: how large its trainings are, who runs when, and what runs are worth.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "bench/ab/reproduction/conduct.h"
#include "bench/ab/reproduction/outcome.h"
#include "bench/ab/reproduction/rows.h"

namespace clustar::bench::ab::reproduction {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// By the model that first_scales() has of a server: all gradients in, then all out.
double ceiling_of(const Load& load, const Scales& scales) {
  const double server_s = 2.0 * load.ranks * 8 * static_cast<double>(load.gradient_bytes) / scales.byte /
                          static_cast<double>(load.rate_bps);
  return 1 + server_s / (load.compute_s * scales.time);
}

TEST(Rows, AreScaledToTheWantedCeiling) {
  for (const Row& row : all_rows()) {
    for (const int ranks : {2, 8, 16}) {
      for (const std::uint64_t bytes : {31'400ull, 244'403'360ull}) {
        const Load load{.compute_s = 1e-5, .gradient_bytes = bytes, .ranks = ranks, .rate_bps = 200'000'000};
        const Scales scales = first_scales(row, load);
        EXPECT_NEAR(ceiling_of(load, scales), 1.25 * row.published, 1e-9) << row.model;
        EXPECT_GE(scales.byte, 1) << "gradients are never larger than they are";
        EXPECT_LE(load.compute_s * scales.time, kComputeSeconds + 1e-9);
        // Had the server taken twice as long, a step would compute twice as long.
        const double exposed_s = 2 * (wanted_ceiling(row) - 1) * load.compute_s * scales.time;
        EXPECT_NEAR(time_scale(row, load, exposed_s), 2 * scales.time, 1e-6 * scales.time);
      }
    }
  }
}

TEST(Rows, AreChosenByName) {
  EXPECT_EQ(choose_rows({})->size(), 5u);
  const auto two = choose_rows({"vgg16", "lr"});
  ASSERT_TRUE(two);
  EXPECT_EQ(two->at(0).model, "lr");
  EXPECT_EQ(two->at(1).published, 1.33);
  const auto none = choose_rows({"gpt"});
  ASSERT_FALSE(none);
  EXPECT_THAT(none.error().message, HasSubstr("allowed: lr, mlp, alexnet, vgg16, resnet50"));
}

TEST(Rounds, GiveEveryArmEveryPlace) {
  EXPECT_THAT(order_of_round(2, 0), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(order_of_round(2, 1), ElementsAre(1, 2, 3, 0));
  for (std::size_t place = 0; place < 4; ++place) {
    std::set<std::size_t> seen;
    for (int round = 0; round < 4; ++round) seen.insert(order_of_round(2, round)[place]);
    EXPECT_EQ(seen.size(), 4u);
  }
}

TablePlan plan_of_two() {
  TablePlan plan;
  plan.rows = *choose_rows({"lr", "resnet50"});
  plan.baseline = {.name = "server", .settings = {}, .plugin = {}, .options = {{"collective", "ps"}}};
  plan.arms = {{.name = "slow", .settings = {}, .plugin = "p"}, {.name = "fast", .settings = {}, .plugin = "p"}};
  plan.rate_bps = 200'000'000;
  plan.card = "p100";
  return plan;
}

TEST(Table, SaysBeforeItRunsWhatNoReplayReaches) {
  TablePlan plan = plan_of_two();
  EXPECT_TRUE(check(plan));
  plan.ranks = 4;
  plan.card = "h200";
  plan.rate_bps = 5'000'000;
  const auto slow = check(plan);
  ASSERT_FALSE(slow);
  EXPECT_THAT(slow.error().message, AllOf(HasSubstr("lr: "), HasSubstr("--rate 5M"), HasSubstr("on h200"),
                                          HasSubstr("1e-06 to 1e+06"), HasSubstr("faster --rate")));
  plan.rate_bps = 50'000'000;
  EXPECT_TRUE(check(plan));
  plan.ranks = 16;
  plan.card = "p100";
  plan.steps = 1953;
  EXPECT_TRUE(check(plan));
  plan.steps = 1954;
  const auto many = check(plan);
  ASSERT_FALSE(many);
  EXPECT_THAT(many.error().message, AllOf(HasSubstr("--table-steps 1954"), HasSubstr("allowed: 1953 steps")));
}

// A world in which compute takes what it is told and each arm a fixed time of communication.
struct World {
  std::map<std::string, double> exposed{{"server", 0.4}, {"slow", 0.3}, {"fast", 0.05}};
  std::vector<std::string> ran;
  std::vector<std::size_t> told;  // how many rows there were after each
  int fail_at = -1;

  Result<json> train(const Plan& plan, Role role) {
    const std::string who = role == Role::kCeiling    ? "alone"
                            : role == Role::kBaseline ? plan.baseline.name
                                                      : plan.candidate.name;
    if (static_cast<int>(ran.size()) == fail_at) return fail(ErrorCode::kRemote, "rank 3 was lost");
    ran.push_back(plan.train.model + " " + who);
    const double compute_s = 0.1 * plan.train.compute.time_scale;
    const double step_s = compute_s + (who == "alone" ? 0 : exposed[who]);
    return json{{"images_per_second", plan.train.batch / step_s},
                {"exposed_comm_s", 8 * (step_s - compute_s)},
                {"compute_s", 8 * compute_s},
                {"steps", 8}};
  }
  Hands hands() {
    return {.train = [this](const Plan& plan, Role role, int) { return train(plan, role); },
            .interrupted = [] { return 0; },
            .say = {},
            .on_row = [this](const json& rows) { told.push_back(rows.size()); }};
  }
};

json document_of(const TablePlan& plan, const json& results) {
  json document{{"results", results}, {"version", "1"}, {"machine", json::object()}, {"command", "ab"}};
  const Surroundings around{.fabric = {.hosts = plan.ranks, .rate_bps = plan.rate_bps},
                            .kernel_congestion_control = "reno"};
  document.update(setting(plan, around, results));
  return document;
}

TEST(Table, TakesTheBestOfOurArmsAfterTwoProbes) {
  const TablePlan plan = plan_of_two();
  World world;
  const json results = judge(conduct(plan, world.hands()), "server");
  ASSERT_EQ(results.size(), 2u);
  EXPECT_EQ(world.ran.size(), 2u * (2 + 5 * 4));
  EXPECT_THAT(world.told, ElementsAre(1, 2));
  EXPECT_EQ(world.ran[0], "lr server");
  EXPECT_EQ(world.ran[3], "lr alone");
  for (const json& one : results) {
    EXPECT_EQ(one["candidate"], "fast");
    EXPECT_EQ(one["arms"].size(), 2u);
    EXPECT_GT(one["ratio"], 1);
    EXPECT_LT(one["ratio"], one["ceiling_ratio"]);
    EXPECT_TRUE(one["problem"].is_null());
    EXPECT_EQ(one["rounds"], 5);
    EXPECT_EQ(one["met"], one["ratio_low"] >= one["published"]);
  }
  const json document = document_of(plan, results);
  const std::string text = table(document);
  EXPECT_THAT(text, AllOf(HasSubstr("reproduction"), HasSubstr("resnet50"), HasSubstr("best median"),
                          HasSubstr("5 rounds"), HasSubstr("200M")));
  EXPECT_THAT(page(document), AllOf(HasSubstr("A reproduction on an emulated network"), HasSubstr("best median"),
                                    HasSubstr("MTU 1500"), HasSubstr("leaves TCP&#39;s congestion control")));
}

// A row whose only arm was so many times as fast as its server, round by round.
json judged(double published, const std::vector<double>& ratios) {
  json runs = json::array();
  for (std::size_t round = 0; round < ratios.size(); ++round) {
    runs.push_back({{"arm", "server"}, {"round", round + 1}, {"images_per_second", 10.0}});
    runs.push_back({{"arm", "ours"}, {"round", round + 1}, {"images_per_second", 10.0 * ratios[round]}});
  }
  const json row{{"model", "lr"}, {"published", published}, {"runs", runs}, {"problem", nullptr}};
  return judge(json::array({row}), "server")[0];
}

TEST(Table, HasNoVerdictBelowFiveRounds) {
  for (const std::vector<double>& few : {std::vector<double>{3}, {3, 3}, {3, 3, 3, 3}}) {
    const json one = judged(2.5, few);
    EXPECT_TRUE(one["met"].is_null()) << one;
    EXPECT_EQ(one["verdict"], "no verdict: " + std::to_string(few.size()) + " of 5 rounds");
  }
  EXPECT_EQ(judged(2.5, {3, 3, 3, 3, 3})["verdict"], "met");
}

TEST(Table, IsMetByTheLowEndOfTheInterval) {
  const json open = judged(2.5, {2.2, 2.3, 2.6, 2.7, 2.8});
  EXPECT_GT(open["ratio"], 2.5);
  EXPECT_EQ(open["met"], false);
  EXPECT_EQ(open["verdict"], "not shown: the interval includes it");
  EXPECT_EQ(judged(2.5, {2.6, 2.6, 2.7, 2.7, 2.8})["met"], true);
  EXPECT_EQ(judged(2.5, {2.1, 2.2, 2.3, 2.4, 2.4})["verdict"], "MISSED");
}

TEST(Table, SaysWhereItWasMeasuredAndWhatWeakensIt) {
  TablePlan plan = plan_of_two();
  plan.ranks = 4;
  plan.rounds = 1;
  plan.seed = 7;
  plan.arms[1].settings = {{"CLUSTAR_TRANSPORT", "mlt"}};
  World world;
  Hands hands = world.hands();
  hands.train = [&](const Plan& one, Role role, int) {
    EXPECT_EQ(one.train.seed, 7u);
    auto results = world.train(one, role);
    const bool busy = world.ran.size() == 4;
    (*results)["other_cpu_cores"] = busy ? 0.25 : 0.01;
    (*results)["other_cpu_disturbs"] = busy;
    return results;
  };
  const json document = document_of(plan, judge(conduct(plan, hands), "server"));
  EXPECT_EQ(document["place"]["rate_bps"], 200'000'000);
  EXPECT_EQ(document["place"]["ranks"], 4);
  EXPECT_EQ(document["place"]["mtu"], 1500);
  EXPECT_EQ(document["planned_rounds"], 1);
  EXPECT_EQ(document["card"], "p100");
  const std::string warnings = document["warnings"].dump();
  EXPECT_THAT(warnings, AllOf(HasSubstr("1 of at least 5 rounds"), HasSubstr("'server'"),
                              HasSubstr("to the kernel (reno), as a parameter server of 2018 does"),
                              HasSubstr("others used more than 5 % of a core in 1 of 8 runs, up to 0.25 cores")));
  EXPECT_THAT(warnings, HasSubstr("'slow'"));
  EXPECT_THAT(warnings, ::testing::Not(HasSubstr("'fast'"))) << "MLT has its own";
  EXPECT_THAT(table(document), AllOf(HasSubstr("warning: 1 of at least 5 rounds"), HasSubstr("no verdict: 1 of 5")));
  EXPECT_THAT(page(document), AllOf(HasSubstr("Warning: 1 of at least 5 rounds"), HasSubstr("no verdict: 1 of 5")));
}

TEST(Table, ARowThatAProbeScalesTooFarEndsThere) {
  const TablePlan plan = plan_of_two();
  World world;
  world.exposed["server"] = 1e4;
  const json rows = conduct(plan, world.hands());
  EXPECT_EQ(world.ran[1], "resnet50 server") << "no run that the trainer would refuse";
  EXPECT_THAT(rows[0]["problem"].get<std::string>(), HasSubstr("a replay takes 1e-06 to 1e+06"));
  EXPECT_TRUE(rows[1]["problem"].is_null()) << rows[1]["problem"];
}

TEST(Table, ARunIsNeverLongerThanTheTrainerTakes) {
  TablePlan plan = plan_of_two();
  plan.ranks = 64;
  World world;
  world.exposed["server"] = 1e-6;  // so that steps are short, and many make a run
  std::size_t most = 0;
  Hands hands = world.hands();
  hands.train = [&](const Plan& one, Role role, int) {
    most = std::max(most, one.train.generated);
    return world.train(one, role);
  };
  conduct(plan, hands);
  EXPECT_GT(most, 900'000u);
  EXPECT_LE(most, 1'000'000u);
}

TEST(Table, ARunThatFailsEndsItsRowAndNoOther) {
  const TablePlan plan = plan_of_two();
  World world;
  world.fail_at = 7;
  const json results = judge(conduct(plan, world.hands()), "server");
  EXPECT_THAT(results[0]["problem"].get<std::string>(), HasSubstr("rank 3 was lost"));
  EXPECT_TRUE(results[0]["met"].is_null());
  EXPECT_THAT(table(document_of(plan, results)), HasSubstr("not measured"));
  world.fail_at = 0;
  world.ran.clear();
  const json nothing = judge(conduct(plan, world.hands()), "server");
  EXPECT_TRUE(nothing[0]["ratio"].is_null());
  EXPECT_EQ(nothing[0]["verdict"], "not measured");
  EXPECT_THAT(table(document_of(plan, nothing)), HasSubstr("not measured"));
}

}  // namespace
}  // namespace clustar::bench::ab::reproduction
