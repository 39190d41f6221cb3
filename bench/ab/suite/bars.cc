#include "bench/ab/suite/bars.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "bench/ab/suite/arm.h"
#include "bench/ab/suite/figures.h"
#include "bench/ab/suite/pairs.h"

namespace clustar::bench::ab::suite {
namespace {

using nlohmann::json;

struct TimeBar {
  const char* scenario;
  const char* algorithm;
  double at_least;  // times sooner than the reference
};
constexpr TimeBar kTimeBars[]{{"gray", kRing, 1.1},
                              {"gray", kAllToAll, 1.3},
                              {"clean", kRing, 0.97},
                              {"clean", kAllToAll, 0.97},
                              {"spine-shuffled", kParaexpress, 2}};
constexpr const char* kHeld[]{"mlt-p0", "mlt-p1"};
// ParaExpress is held to its plans, whatever carries them.
constexpr const char* kHeldByPlan[]{"tcp-cubic-rto5", "tcp-bbr-rto5", "mlt-p0"};

std::span<const char* const> held(const std::string& algorithm) {
  return algorithm == kParaexpress ? std::span<const char* const>(kHeldByPlan) : std::span<const char* const>(kHeld);
}
constexpr double kMostGrowth = 1.05;
constexpr double kLeastDifference = -0.005;

const json* figure_of(const json& scenario, const std::string& arm) { return find_named(scenario.at("figures"), arm); }

bool was_asked_for(const json& scenario, const std::string& arm) {
  return find_named(scenario.at("arms"), arm) != nullptr;
}

bool may_lose(const std::string& carrier) {
  const auto known = find_carrier(carrier);
  return known && known->tolerance_ppm > 0;
}

json empty_bar(const json& scenario, const std::string& arm, const std::string& what, const json& limit) {
  return {{"scenario", scenario.at("name")},
          {"arm", arm},
          {"what", what},
          {"limit", limit},
          {"value", nullptr},
          {"low", nullptr},
          {"high", nullptr},
          {"met", nullptr},
          {"text", "not measured"}};
}

// Misses a bar of which runs failed; false when none did.
bool failed(const json& scenario, json& bar) {
  const Failures failures = failures_of(scenario, bar.at("arm"));
  if (failures.count == 0) return false;
  bar["met"] = false;
  bar["text"] = fmt::format("{} of its runs failed: {}", failures.count, failures.why);
  return true;
}

std::string pairs_text(const json& estimate, int rounds) {
  std::string text = fmt::format(", {} of {} pairs", estimate.at("pairs").get<std::size_t>(), rounds);
  const auto add = [&](const char* key, const char* what) {
    if (number(estimate, key) > 0) text += fmt::format(", {} {}", number(estimate, key), what);
  };
  add("censored_arm", "where it failed or missed the target");
  add("censored_reference", "where the reference failed or missed it");
  add("neither", "where both did");
  return text;
}

// Fills `bar` by a ratio in pairs. `reason`: why there can be no verdict, or "".
void judge_ratio(const json& estimate, int rounds, bool at_least, const std::string& reason, json& bar) {
  if (!estimate.is_object()) {
    if (!reason.empty()) bar["text"] = "not measured; " + reason;
    return;
  }
  for (const char* key : {"low", "high"}) bar[key] = estimate[key];
  bar["value"] = estimate["ratio"];
  const std::size_t pairs = estimate["pairs"];
  std::string text = interval_text(estimate) + pairs_text(estimate, rounds);
  const double limit = bar["limit"];
  const bool has_interval = estimate["low"].is_number();
  if (has_interval && estimate["low"] <= limit && estimate["high"] >= limit)
    text += "; the interval includes the limit";
  if (!reason.empty()) {
    text += "; no verdict: " + reason;
  } else if (pairs < kLeastPairs) {
    text += fmt::format("; no verdict from fewer than {} pairs", kLeastPairs);
  } else if (pairs + static_cast<std::size_t>(number(estimate, "neither")) != static_cast<std::size_t>(rounds)) {
    text += "; no verdict, because pairs are missing";
  } else {
    const double value = estimate["ratio"];
    bar["met"] = at_least ? value >= limit : value <= limit;
  }
  bar["text"] = text;
}

int rounds_of(const json& training) { return training.at("options").at("rounds"); }

bool has_target(const json& training) { return !training.at("options").at("target_accuracy").is_null(); }

void add_time_bars(const json& training, const json& scenario, json& bars) {
  for (const TimeBar& one : kTimeBars) {
    if (scenario.at("name") != one.scenario) continue;
    for (const char* carrier : held(one.algorithm)) {
      const std::string arm = fmt::format("{}/{}", carrier, one.algorithm);
      if (!was_asked_for(scenario, arm)) continue;
      json result = empty_bar(scenario, arm,
                              fmt::format("{} at least {:g} times sooner than the better TCP",
                                          has_target(training) ? "target accuracy" : "equal steps", one.at_least),
                              one.at_least);
      if (const json* figure = figure_of(scenario, arm)) {
        const json& note = figure->at("reference_note");
        judge_ratio(figure->at(has_target(training) ? "time_ratio" : "step_ratio"), rounds_of(training), true,
                    note.is_null() ? "" : note.get<std::string>(), result);
        if (const json& reference = figure->at("reference"); !reference.is_null() && result["value"].is_number()) {
          result["text"] = result["text"].get<std::string>() + "; of " + reference.get<std::string>();
        }
      }
      bars.push_back(std::move(result));
    }
  }
}

void add_growth_bars(const json& training, const json& scenario, json& bars) {
  if (!scenario.at("name").get<std::string>().starts_with("bursts")) return;
  for (const char* algorithm : {kRing, kAllToAll}) {
    std::string tcp;
    for (const json& figure : scenario.at("figures")) {
      if (figure.at("algorithm") != algorithm || !figure.at("carrier").get<std::string>().starts_with("tcp")) continue;
      if (figure.at("growth").is_null()) continue;
      tcp += fmt::format("{}{} {:.3f}", tcp.empty() ? "; beside it " : ", ", figure.at("carrier").get<std::string>(),
                         figure.at("growth").at("ratio").get<double>());
    }
    for (const char* carrier : kHeld) {
      const std::string arm = fmt::format("{}/{}", carrier, algorithm);
      if (!was_asked_for(scenario, arm)) continue;
      json result = empty_bar(scenario, arm, "a step at most 5 % longer than in clean", kMostGrowth);
      const json* figure = figure_of(scenario, arm);
      if (figure != nullptr && !failed(scenario, result)) {
        judge_ratio(figure->at("growth"), rounds_of(training), false, "", result);
        if (result["value"].is_number()) result["text"] = result["text"].get<std::string>() + tcp;
      }
      bars.push_back(std::move(result));
    }
  }
}

// Why a difference of accuracies says nothing about what is missing, or "".
std::string no_accuracy_verdict(const json& training, const json& figure) {
  if (has_target(training)) return "runs end at the target; accuracies are compared with --epochs alone";
  if (!figure.contains("missing_in_every_run")) return "the plugin does not say what is missing";
  if (figure["missing_in_every_run"] != true) return "in some run nothing was missing";
  const json& difference = figure.at("accuracy_difference");
  if (!difference.is_object()) return "no pair with mlt-p0";
  if (difference.at("pairs").get<std::size_t>() < kLeastAccuracyPairs) {
    return fmt::format("fewer than {} pairs", kLeastAccuracyPairs);
  }
  return "";
}

void judge_accuracy(const json& training, const json& figure, json& bar) {
  const std::string reason = no_accuracy_verdict(training, figure);
  std::string text;
  if (const json& difference = figure.at("accuracy_difference"); difference.is_object()) {
    bar["value"] = difference["mean"];
    bar["low"] = difference["low"];
    bar["high"] = difference["high"];
    text = fmt::format("{:+.2f} points", 100 * difference["mean"].get<double>());
    if (difference["low"].is_number())
      text += fmt::format(", lower bound {:+.2f}", 100 * difference["low"].get<double>());
    text += pairs_text(difference, rounds_of(training));
    if (reason.empty()) bar["met"] = difference["low"] > kLeastDifference;
  }
  if (!reason.empty()) text += fmt::format("{}no verdict: {}", text.empty() ? "" : "; ", reason);
  bar["text"] = text;
}

void add_accuracy_bars(const json& training, const json& scenario, json& bars) {
  for (const json& entry : scenario.at("arms")) {
    const std::string arm = entry.at("name"), algorithm = entry.at("algorithm");
    if (!may_lose(entry.at("carrier")) || !was_asked_for(scenario, "mlt-p0/" + algorithm)) continue;
    json result =
        empty_bar(scenario, arm, "accuracy no more than 0.5 points below p = 0 (lower 95 % bound)", kLeastDifference);
    const json* figure = figure_of(scenario, arm);
    if (!failed(scenario, result) && figure != nullptr) judge_accuracy(training, *figure, result);
    bars.push_back(std::move(result));
  }
}

void judge_contract(const json& figure, int rounds, bool lossy, json& bar) {
  const json& missing = figure.at("missing_bytes");
  bar["value"] = missing;
  if (!missing.is_number()) {
    bar["text"] = "the plugin does not say what is missing";
    return;
  }
  bar["met"] = figure.at("within_ledger") == true && figure.at("replicas_identical") == true &&
               (!lossy || figure.at("missing_in_every_run") == true);
  bar["text"] =
      fmt::format("{:.0f} bytes missing{}; replicas {}", missing.get<double>(),
                  figure.at("missing_share").is_number()
                      ? fmt::format(", {:.3f} % of the eligible", 100 * figure.at("missing_share").get<double>())
                      : "",
                  figure.at("replicas_identical") == true ? "identical" : "NOT identical or not compared");
  // What has not run yet may still break it.
  if (bar["met"] != true || figure.at("runs") == rounds) return;
  bar["met"] = nullptr;
  bar["text"] = fmt::format("{}; no verdict from {} of {} runs", bar["text"].get<std::string>(),
                            figure.at("runs").get<int>(), rounds);
}

// That no arm but the one that breaks the contract lost more than it may, and that replicas were equal bit for bit. The
// trainer ends a run in which that is not so, so it shows as a failed run.
void add_contract_bars(const json& training, const json& scenario, json& bars) {
  const bool lossy = !scenario.at("losses").empty();
  for (const json& entry : scenario.at("arms")) {
    if (!may_lose(entry.at("carrier"))) continue;
    json result = empty_bar(scenario, entry.at("name"),
                            lossy ? "something is missing in every run, all within the ledger; replicas identical"
                                  : "missing bytes within the ledger; replicas identical",
                            nullptr);
    const json* figure = figure_of(scenario, entry.at("name"));
    if (!failed(scenario, result) && figure != nullptr) judge_contract(*figure, rounds_of(training), lossy, result);
    bars.push_back(std::move(result));
  }
}

}  // namespace

json bars_of(const json& training) {
  json bars = json::array();
  for (const json& scenario : training.at("scenarios")) {
    add_time_bars(training, scenario, bars);
    add_growth_bars(training, scenario, bars);
    add_accuracy_bars(training, scenario, bars);
    add_contract_bars(training, scenario, bars);
  }
  return bars;
}

}  // namespace clustar::bench::ab::suite
