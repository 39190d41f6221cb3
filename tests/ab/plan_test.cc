#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "bench/ab/experiment.h"

namespace clustar::bench::ab {
namespace {

Plan plan() {
  Plan plan;
  plan.baseline = {"a", {}, "/a.so"};
  plan.candidate = {"b", {}, "/b.so"};
  plan.train.seed = 7;
  plan.train.target_accuracy = 0.5;
  return plan;
}

// Option -> value.
std::map<std::string, std::string> parsed(const std::vector<std::string>& arguments) {
  std::map<std::string, std::string> options;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const bool has_value = i + 1 < arguments.size() && !arguments[i + 1].starts_with("--");
    options[arguments[i]] = has_value ? arguments[i + 1] : "";
    i += has_value ? 1 : 0;
  }
  return options;
}

TEST(AbPlan, DamagedImagesAreLeftOutOfEveryRunOrNone) {
  Plan with = plan();
  for (const bool skips : {false, true}) {
    with.train.data = "photos";
    with.train.skip_damaged = skips;
    for (const Role role : order_of_round(0)) {
      EXPECT_EQ(parsed(train_arguments(with, role, 0)).count("--skip-damaged"), skips ? 1u : 0u) << to_string(role);
    }
  }
}

TEST(AbPlan, ArmsTakeTurnsAsAbba) {
  std::vector<Role> arms;
  for (int round = 0; round < 4; ++round) {
    const std::vector<Role> order = order_of_round(round);
    ASSERT_EQ(order.size(), 3u);
    EXPECT_EQ(std::count(order.begin(), order.end(), Role::kCeiling), 1);
    for (const Role role : order) {
      if (role != Role::kCeiling) arms.push_back(role);
    }
  }
  const Role a = Role::kBaseline;
  const Role b = Role::kCandidate;
  EXPECT_EQ(arms, (std::vector<Role>{a, b, b, a, a, b, b, a}));
}

TEST(AbPlan, ArmsOfARoundDifferInNothingButThePlugin) {
  for (int round = 0; round < 3; ++round) {
    auto a = parsed(train_arguments(plan(), Role::kBaseline, round));
    auto b = parsed(train_arguments(plan(), Role::kCandidate, round));
    EXPECT_EQ(a.at("--plugin"), "/a.so");
    EXPECT_EQ(b.at("--plugin"), "/b.so");
    a.erase("--plugin");
    b.erase("--plugin");
    EXPECT_EQ(a, b);
    EXPECT_EQ(a.at("--seed"), std::to_string(7 + round)) << "each round has a seed of its own";
  }
}

TEST(AbPlan, AnArmByParaexpressHasNoPluginAndNoRings) {
  Plan with = plan();
  with.candidate = {"b", {}, "", {{"collective", "paraexpress"}, {"plan", "ring"}}};
  auto a = parsed(train_arguments(with, Role::kBaseline, 0));
  auto b = parsed(train_arguments(with, Role::kCandidate, 0));
  EXPECT_EQ(b.at("--collective"), "paraexpress");
  EXPECT_EQ(b.at("--plan"), "ring");
  for (const char* its_own : {"--collective", "--plan"}) b.erase(its_own);
  for (const char* of_a_plugin : {"--plugin", "--channels"}) EXPECT_EQ(a.erase(of_a_plugin), 1u);
  EXPECT_EQ(a, b);
  with.baseline = with.candidate;
  const auto ceiling = parsed(train_arguments(with, Role::kCeiling, 0));
  EXPECT_EQ(ceiling.count("--collective"), 0u) << "there is nothing to sum";
}

TEST(AbPlan, ThePsBaselineHasNoPluginAndNoRings) {
  Plan with = plan();
  with.candidate = {"b", {}, "", {{"collective", "ps"}}};
  auto a = parsed(train_arguments(with, Role::kBaseline, 0));
  auto b = parsed(train_arguments(with, Role::kCandidate, 0));
  EXPECT_EQ(b.at("--collective"), "ps");
  b.erase("--collective");
  for (const char* of_a_plugin : {"--plugin", "--channels"}) EXPECT_EQ(a.erase(of_a_plugin), 1u);
  EXPECT_EQ(a, b);
}

TEST(AbPlan, TheCeilingTrainsTheSameWithoutCommunication) {
  const auto a = parsed(train_arguments(plan(), Role::kBaseline, 1));
  const auto ceiling = parsed(train_arguments(plan(), Role::kCeiling, 1));
  EXPECT_EQ(ceiling.count("--no-communication"), 1u);
  EXPECT_EQ(ceiling.count("--target-accuracy"), 0u) << "ranks that train apart would reach it at another time";
  for (const char* same : {"--model", "--epochs", "--batch", "--seed", "--examples", "--bucket-mb"}) {
    EXPECT_EQ(ceiling.at(same), a.at(same)) << same;
  }
}

}  // namespace
}  // namespace clustar::bench::ab
