// What the tests of conduct() share: a small plan, and hands that train nothing.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/ab/suite/conduct.h"

namespace clustar::bench::ab::suite {

inline SuitePlan small_plan(const std::vector<std::string>& carriers, int rounds) {
  SuitePlan plan;
  plan.scenarios = choose_scenarios({"clean", "gray"}, {}).value();
  plan.arms = choose_arms(carriers, {"ring"}).value();
  plan.rounds = rounds;
  plan.training.train.model = "lr";
  plan.training.train.seed = 40;
  plan.largest_bucket_bytes = 1 << 20;
  return plan;
}

// Hands that train nothing, and remember what they were asked for.
struct FakeHands {
  std::vector<std::string> asked;
  int opened = 0, closed = 0;
  std::map<std::string, Error> failing;  // by arm

  Hands hands() {
    return {.open = [this](const Scenario&) -> Result<nlohmann::json> {
              ++opened;
              return nlohmann::json{{"text", "fake"}};
            },
            .run = [this](const Scenario& scenario, const SuiteArm& arm, int round) -> Result<nlohmann::json> {
              asked.push_back(scenario.name + " " + arm.name() + " " + std::to_string(round));
              if (const auto found = failing.find(arm.name()); found != failing.end()) {
                return tl::unexpected(found->second);
              }
              return nlohmann::json{
                  {"train", {{"steps", 10}, {"train_s", 1.0}, {"images_per_second", 5.0}, {"secret", 1}}},
                  {"switch_lost_on_purpose", 3}};
            },
            .close = [this] { ++closed; }};
  }
};

}  // namespace clustar::bench::ab::suite
