#include "bench/ab/suite/conduct.h"

#include <fmt/format.h>
#include <string.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <utility>

namespace clustar::bench::ab::suite {
namespace {

using nlohmann::json;
using SteadyClock = std::chrono::steady_clock;

constexpr int kMostFailures = 2;
constexpr const char* kInterrupted = "interrupted by signal";  // as trainer::launch() says it, too

double seconds_since(SteadyClock::time_point start) {
  return std::chrono::duration<double>(SteadyClock::now() - start).count();
}

json options_json(const SuitePlan& plan) {
  SuiteArm none;
  none.algorithm = kRing;
  // What all arms share, which is what a later run has to have alike.
  json shared = train_arguments(plan, none, 0);
  return {{"rounds", plan.rounds},
          {"missing", plan.missing},
          {"first_seed", plan.training.train.seed},
          {"target_accuracy",
           plan.training.train.target_accuracy ? json(*plan.training.train.target_accuracy) : json(nullptr)},
          {"epochs", plan.training.train.epochs},
          {"model", plan.training.train.model},
          {"limit_s", plan.limit_s},
          {"inherited_settings", inherited_settings()},
          {"train_arguments", std::move(shared)}};
}

json scenario_json(const Scenario& scenario) {
  json result{{"name", scenario.name},
              {"title", scenario.title},
              {"question", scenario.question},
              {"ranks", scenario.ranks},
              {"rate_bps", scenario.fabric.rate_bps},
              {"fabric", fabric::describe(scenario.fabric)},
              {"losses", describe_losses(scenario)},
              {"notes", scenario.notes},
              {"background", nullptr},
              {"place", nullptr},
              {"arms", json::array()},
              {"runs", json::array()},
              {"problems", json::array()}};
  if (scenario.background.senders > 0) {
    result["background"] = {{"senders", scenario.background.senders},
                            {"target", scenario.background.target},
                            {"bytes", scenario.background.bytes},
                            {"every_ms", scenario.background.every_ms}};
  }
  return result;
}

json arm_json(const SuitePlan& plan, const Scenario& scenario, const SuiteArm& arm) {
  const Load load{plan.largest_bucket_bytes, scenario.ranks, scenario.fabric.rate_bps};
  return {{"name", arm.name()},
          {"carrier", arm.carrier.name},
          {"algorithm", arm.algorithm},
          {"label", arm.carrier.label},
          {"settings", environment_of(arm, load)},
          {"rto_min_us", arm.carrier.rto_min_us},
          {"train_arguments", arguments_of(arm, plan.missing)},
          {"left_out", nullptr}};
}

// Of what the trainer reported; the rest would only make the file long.
json kept(const json& train) {
  json result = json::object();
  for (const char* key : {"images_per_second",
                          "train_s",
                          "compute_s",
                          "exposed_comm_s",
                          "hidden_comm_s",
                          "steps",
                          "images",
                          "bytes_sent",
                          "accuracy",
                          "loss",
                          "target_reached",
                          "time_to_target_s",
                          "replicas_identical",
                          "parameters_digest",
                          "missing_bytes",
                          "eligible_bytes",
                          "delivered_bytes",
                          "identified_messages",
                          "tolerant_messages",
                          "loss_bound",
                          "worst_charge",
                          "reliable_reasons",
                          "all_reduce",
                          "missing_policy",
                          "missing_contributions",
                          "expected_contributions",
                          "per_epoch",
                          "curve",
                          "accuracy_curve",
                          "step_seconds",
                          "data_source",
                          "shape",
                          "failure",
                          "transport"}) {
    result[key] = train.value(key, json(nullptr));
  }
  return result;
}

const json* find_run(const json& training, const std::string& scenario, const std::string& arm, int round) {
  if (!training.is_object()) return nullptr;
  for (const json& one : training.at("scenarios")) {
    if (one.at("name") != scenario) continue;
    for (const json& run : one.at("runs")) {
      if (run.at("arm") == arm && run.at("round") == round && !run.contains("failed")) return &run;
    }
  }
  return nullptr;
}

class Conductor {
 public:
  Conductor(const SuitePlan& plan, const Hands& hands, const SuiteEvents& events, const json& before)
      : plan_(plan), hands_(hands), events_(events), before_(before) {
    total_ = static_cast<int>(plan.scenarios.size() * plan.arms.size()) * plan.rounds;
    training_ = {{"options", options_json(plan)},
                 {"reference", plan.reference},
                 {"scenarios", json::array()},
                 {"interrupted", false},
                 {"ended_by", nullptr}};
  }

  Result<json> run() {
    if (before_.is_object() && before_.at("options") != training_["options"]) {
      return fail(ErrorCode::kInvalidArgument,
                  "--resume: that file was made with other options; give the same ones, or begin a new file");
    }
    for (const Scenario& scenario : plan_.scenarios) {
      if (over()) break;
      training_["scenarios"].push_back(scenario_json(scenario));
      run_scenario(scenario, training_["scenarios"].back());
      tell();
    }
    return std::move(training_);
  }

 private:
  bool over() {
    if (training_["interrupted"] == true) return true;
    const int signal = events_.interrupted ? events_.interrupted() : 0;
    if (signal != 0) end(fmt::format("{} {} ({})", kInterrupted, signal, strsignal(signal)));
    return signal != 0;
  }

  void end(const std::string& why) {
    training_["interrupted"] = true;
    training_["ended_by"] = why;
  }

  void tell() {
    if (events_.on_change) events_.on_change(training_);
  }

  // Without anything to run there, an earlier result is drawn again where no fabric can be made.
  bool all_known(const Scenario& scenario) const {
    for (const SuiteArm& arm : plan_.arms) {
      for (int round = 0; round < plan_.rounds; ++round) {
        if (find_run(before_, scenario.name, arm.name(), round + 1) == nullptr) return false;
      }
    }
    return true;
  }

  void run_scenario(const Scenario& scenario, json& result) {
    for (const SuiteArm& arm : plan_.arms) result["arms"].push_back(arm_json(plan_, scenario, arm));
    failures_.assign(plan_.arms.size(), 0);
    const bool opens = !all_known(scenario);
    if (opens) {
      auto place = hands_.open(scenario);
      if (!place) {
        result["problems"].push_back(place.error().message);
        done_ += static_cast<int>(plan_.arms.size()) * plan_.rounds;
        return;
      }
      result["place"] = std::move(*place);
    }
    for (int round = 0; round < plan_.rounds && !over(); ++round) {
      for (const std::size_t index : order_of_round(plan_.arms.size(), round)) {
        if (over()) break;
        run_arm(scenario, index, round, result);
      }
    }
    if (opens) hands_.close();
  }

  void run_arm(const Scenario& scenario, std::size_t index, int round, json& result) {
    const SuiteArm& arm = plan_.arms[index];
    ++done_;
    if (failures_[index] >= kMostFailures) return;
    if (const json* known = find_run(before_, scenario.name, arm.name(), round + 1)) {
      result["runs"].push_back(*known);
      return;
    }
    const auto start = SteadyClock::now();
    auto outcome = hands_.run(scenario, arm, round);
    json run{{"arm", arm.name()},
             {"round", round + 1},
             {"seed", plan_.training.train.seed + static_cast<std::uint64_t>(round)},
             {"order", done_}};
    if (outcome) {
      const json train = kept(outcome->at("train"));
      outcome->erase("train");
      run.update(train);
      run.update(*outcome);
    } else {
      // One that was broken off says nothing about its arm. While ranks run, signals come to their launcher.
      if (outcome.error().message.starts_with(kInterrupted)) end(outcome.error().message);
      if (over()) return;
      note_failure(outcome.error(), index, run, result);
    }
    run["wall_s"] = seconds_since(start);
    measured_s_ += seconds_since(start);
    ++measured_;
    result["runs"].push_back(std::move(run));
    if (events_.on_run) {
      const int left = total_ - done_;
      events_.on_run(result["runs"].back(), done_, total_, left * measured_s_ / measured_);
    }
    tell();
  }

  void note_failure(const Error& error, std::size_t index, json& run, json& result) {
    run["failed"] = error.message;
    failures_[index] += error.code == ErrorCode::kUnavailable ? kMostFailures : 1;
    if (failures_[index] >= kMostFailures) result["arms"][index]["left_out"] = error.message;
  }

  const SuitePlan& plan_;
  const Hands& hands_;
  const SuiteEvents& events_;
  const json& before_;
  json training_;
  std::vector<int> failures_;
  int done_ = 0;
  int total_ = 0;
  double measured_s_ = 0;
  int measured_ = 0;
};

}  // namespace

std::vector<std::size_t> order_of_round(std::size_t arms, int round) {
  std::vector<std::size_t> order(arms);
  for (std::size_t i = 0; i < arms; ++i) order[i] = (i + static_cast<std::size_t>(round / 2)) % arms;
  if (round % 2 != 0) std::reverse(order.begin(), order.end());
  return order;
}

std::vector<std::string> train_arguments(const SuitePlan& plan, const SuiteArm& arm, int round) {
  std::vector<std::string> arguments = ab::train_arguments(plan.training, Role::kBaseline, round);
  const std::vector<std::string> own = arguments_of(arm, plan.missing);
  arguments.insert(arguments.end(), own.begin(), own.end());
  return arguments;
}

Result<json> conduct(const SuitePlan& plan, const Hands& hands, const SuiteEvents& events, const json& before) {
  return Conductor(plan, hands, events, before).run();
}

}  // namespace clustar::bench::ab::suite
