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

json scenario_json(const SuitePlan& plan, const Scenario& scenario) {
  json result{{"name", scenario.name},
              {"title", scenario.title},
              {"question", scenario.question},
              {"ranks", scenario.ranks},
              {"rate_bps", scenario.fabric.rate_bps},
              {"mtu", scenario.fabric.mtu},
              {"buffer_bytes", scenario.fabric.buffer_bytes},
              {"version", plan.version},
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
          {"train_options", options_of(arm)},
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
                          "plans",
                          "regions",
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

json* find_in(json& list, const std::string& name) {
  for (json& one : list) {
    if (one.at("name") == name) return &one;
  }
  return nullptr;
}

json* find_run(json& scenario, const std::string& arm, int round) {
  for (json& run : scenario.at("runs")) {
    if (run.at("arm") == arm && run.at("round") == round) return &run;
  }
  return nullptr;
}

// "" when runs of both may stand side by side.
std::string difference(const json& before, const json& now) {
  for (const char* key : {"ranks", "rate_bps", "mtu", "buffer_bytes", "fabric", "losses", "background", "version"}) {
    // One of a version that did not say it.
    if (!before.contains(key) || before[key] == now.at(key)) continue;
    return fmt::format("--resume: {} of scenario {} was {} there and is {} now", key, now.at("name").get<std::string>(),
                       before[key].dump(), now.at(key).dump());
  }
  return "";
}

// What an earlier result says of its scenario's place; that of now may be another.
void put_place_aside(json& scenario) {
  if (scenario.at("place").is_object()) scenario["earlier_places"].push_back(scenario["place"]);
  for (const json& problem : scenario.at("problems")) scenario["earlier_problems"].push_back(problem);
  scenario["problems"] = json::array();
}

class Conductor {
 public:
  Conductor(const SuitePlan& plan, const Hands& hands, const SuiteEvents& events, const json& before)
      : plan_(plan), hands_(hands), events_(events), before_(before) {
    total_ = static_cast<int>(plan.scenarios.size() * plan.arms.size()) * plan.rounds;
    training_ = {{"options", options_json(plan)},
                 {"reference", plan.reference},
                 {"scenarios", json::array()},
                 {"interrupted", true},
                 {"ended_by", "still running: the file is not complete"}};
  }

  Result<json> run() {
    if (const auto ok = begin(); !ok) return tl::unexpected(ok.error());
    for (const Scenario& scenario : plan_.scenarios) {
      if (over()) break;
      json& all = training_["scenarios"];
      if (find_in(all, scenario.name) == nullptr) all.push_back(scenario_json(plan_, scenario));
      run_scenario(scenario, *find_in(all, scenario.name));
      tell();
    }
    training_["interrupted"] = !ended_by_.empty();
    training_["ended_by"] = ended_by_.empty() ? json(nullptr) : json(ended_by_);
    return std::move(training_);
  }

 private:
  // Takes over what is there.
  Result<void> begin() {
    if (!before_.is_object()) return {};
    if (before_.at("options") != training_["options"]) {
      return fail(ErrorCode::kInvalidArgument,
                  "--resume: that file was made with other options; give the same ones, or begin a new file");
    }
    for (json scenario : before_.at("scenarios")) {
      const auto planned = std::find_if(plan_.scenarios.begin(), plan_.scenarios.end(),
                                        [&](const Scenario& one) { return one.name == scenario.at("name"); });
      json now = scenario;
      if (planned != plan_.scenarios.end()) now = scenario_json(plan_, *planned);
      now["version"] = plan_.version;
      if (const std::string text = difference(scenario, now); !text.empty()) {
        return fail(ErrorCode::kInvalidArgument, text + "; give the same, or begin a new file");
      }
      scenario.erase("figures");
      training_["scenarios"].push_back(std::move(scenario));
    }
    return {};
  }

  bool over() {
    if (!ended_by_.empty()) return true;
    const int signal = events_.interrupted ? events_.interrupted() : 0;
    if (signal != 0) ended_by_ = fmt::format("{} {} ({})", kInterrupted, signal, strsignal(signal));
    return signal != 0;
  }

  void tell() {
    if (events_.on_change) events_.on_change(training_);
  }

  bool is_done(const json& run) const { return !plan_.retry_failed || !run.contains("failed"); }

  // Without anything to run there, an earlier result is drawn again where no fabric can be made.
  bool has_work(json& result) const {
    for (const SuiteArm& arm : plan_.arms) {
      int failures = 0;
      for (int round = 0; round < plan_.rounds && failures < kMostFailures; ++round) {
        const json* known = find_run(result, arm.name(), round + 1);
        if (known == nullptr || !is_done(*known)) return true;
        failures += failures_in(*known);
      }
    }
    return false;
  }

  void run_scenario(const Scenario& scenario, json& result) {
    for (const SuiteArm& arm : plan_.arms) {
      json entry = arm_json(plan_, scenario, arm);
      if (json* known = find_in(result["arms"], arm.name())) {
        entry["left_out"] = known->at("left_out");
        *known = std::move(entry);
      } else {
        result["arms"].push_back(std::move(entry));
      }
    }
    failures_.assign(plan_.arms.size(), 0);
    const bool opens = has_work(result);
    if (opens) {
      put_place_aside(result);
      auto place = hands_.open(scenario);
      if (!place) {
        result["problems"].push_back(place.error().message);
        done_ += static_cast<int>(plan_.arms.size()) * plan_.rounds;
        return;
      }
      result["place"] = std::move(*place);
      for (const SuiteArm& arm : plan_.arms) {
        if (plan_.retry_failed) (*find_in(result["arms"], arm.name()))["left_out"] = nullptr;
      }
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
    json* known = find_run(result, arm.name(), round + 1);
    if (known != nullptr && is_done(*known)) {
      if (known->contains("failed")) note_failure(*known, index, result);
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
      if (outcome.error().message.starts_with(kInterrupted)) ended_by_ = outcome.error().message;
      if (over()) return;
      run["failed"] = outcome.error().message;
      run["unavailable"] = outcome.error().code == ErrorCode::kUnavailable;
      note_failure(run, index, result);
    }
    run["wall_s"] = seconds_since(start);
    measured_s_ += seconds_since(start);
    ++measured_;
    const json& record = keep(std::move(run), known, result);
    if (events_.on_run) {
      const int left = total_ - done_;
      events_.on_run(record, done_, total_, left * measured_s_ / measured_);
    }
    tell();
  }

  // In the place of the one that it repeats.
  static const json& keep(json run, json* known, json& result) {
    if (known == nullptr) {
      result["runs"].push_back(std::move(run));
      return result["runs"].back();
    }
    json failed_before = known->value("failed_before", json::array());
    failed_before.push_back(known->at("failed"));
    run["failed_before"] = std::move(failed_before);
    *known = std::move(run);
    return *known;
  }

  static int failures_in(const json& run) {
    if (!run.contains("failed")) return 0;
    return run.value("unavailable", false) ? kMostFailures : 1;
  }

  void note_failure(const json& run, std::size_t index, json& result) {
    failures_[index] += failures_in(run);
    if (failures_[index] < kMostFailures) return;
    (*find_in(result["arms"], plan_.arms[index].name()))["left_out"] = run.at("failed");
  }

  const SuitePlan& plan_;
  const Hands& hands_;
  const SuiteEvents& events_;
  const json& before_;
  json training_;
  std::string ended_by_;  // before all was done; "": not so
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
  Plan training = plan.training;
  training.baseline.options = options_of(arm);
  std::vector<std::string> arguments = ab::train_arguments(training, Role::kBaseline, round);
  const std::vector<std::string> own = arguments_of(arm, plan.missing);
  arguments.insert(arguments.end(), own.begin(), own.end());
  return arguments;
}

Result<json> conduct(const SuitePlan& plan, const Hands& hands, const SuiteEvents& events, const json& before) {
  return Conductor(plan, hands, events, before).run();
}

}  // namespace clustar::bench::ab::suite
