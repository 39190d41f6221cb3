#include "bench/ab/suite/bars.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "bench/ab/suite/arm.h"
#include "bench/ab/suite/figures.h"

namespace clustar::bench::ab::suite {
namespace {

using nlohmann::json;

struct TimeBar {
  const char* scenario;
  const char* algorithm;
  double at_least;  // times sooner than the reference
};
constexpr TimeBar kTimeBars[]{
    {"gray", kRing, 1.1}, {"gray", kAllToAll, 1.3}, {"clean", kRing, 0.97}, {"clean", kAllToAll, 0.97}};
constexpr const char* kHeld[]{"mlt-p0", "mlt-p1"};
constexpr double kMostGrowth = 1.05;
constexpr double kLeastDifference = -0.005;

const json* figure_of(const json& scenario, const std::string& arm) { return find_named(scenario.at("figures"), arm); }

bool was_asked_for(const json& scenario, const std::string& arm) {
  return find_named(scenario.at("arms"), arm) != nullptr;
}

json bar(const json& scenario, const std::string& arm, const std::string& what, double limit, bool at_least,
         const json& estimate, const std::string& more) {
  json result{{"scenario", scenario.at("name")},
              {"arm", arm},
              {"what", what},
              {"limit", limit},
              {"value", nullptr},
              {"low", nullptr},
              {"high", nullptr},
              {"met", nullptr}};
  std::string measured = "not measured";
  if (estimate.is_object()) {
    result["value"] = estimate["ratio"];
    result["low"] = estimate["low"];
    result["high"] = estimate["high"];
    const double value = estimate["ratio"];
    result["met"] = at_least ? value >= limit : value <= limit;
    measured = interval_text(estimate) + (more.empty() ? "" : ", " + more);
  }
  result["text"] = measured;
  return result;
}

void add_time_bars(const json& training, const json& scenario, json& bars) {
  const bool has_target = !training.at("options").at("target_accuracy").is_null();
  for (const TimeBar& one : kTimeBars) {
    if (scenario.at("name") != one.scenario) continue;
    for (const char* carrier : kHeld) {
      const std::string arm = fmt::format("{}/{}", carrier, one.algorithm);
      if (!was_asked_for(scenario, arm)) continue;
      const json* figure = figure_of(scenario, arm);
      const json estimate = figure == nullptr ? json(nullptr) : figure->at(has_target ? "time_ratio" : "step_ratio");
      const std::string against = figure == nullptr || figure->at("reference").is_null()
                                      ? ""
                                      : "of " + figure->at("reference").get<std::string>();
      bars.push_back(bar(scenario, arm,
                         fmt::format("{} at least {:g} times sooner than the better TCP",
                                     has_target ? "target accuracy" : "equal steps", one.at_least),
                         one.at_least, true, estimate, against));
    }
  }
}

void add_growth_bars(const json& scenario, json& bars) {
  if (!scenario.at("name").get<std::string>().starts_with("bursts")) return;
  for (const char* algorithm : {kRing, kAllToAll}) {
    std::string tcp;
    for (const json& figure : scenario.at("figures")) {
      if (figure.at("algorithm") != algorithm || !figure.at("carrier").get<std::string>().starts_with("tcp")) continue;
      if (figure.at("growth").is_null()) continue;
      tcp += fmt::format("{}{} {:.3f}", tcp.empty() ? "beside it " : ", ", figure.at("carrier").get<std::string>(),
                         figure.at("growth").at("ratio").get<double>());
    }
    for (const char* carrier : kHeld) {
      const std::string arm = fmt::format("{}/{}", carrier, algorithm);
      if (!was_asked_for(scenario, arm)) continue;
      const json* figure = figure_of(scenario, arm);
      bars.push_back(bar(scenario, arm, "a step at most 5 % longer than in clean", kMostGrowth, false,
                         figure == nullptr ? json(nullptr) : figure->at("growth"), tcp));
    }
  }
}

void add_accuracy_bars(const json& scenario, json& bars) {
  for (const char* algorithm : {kRing, kAllToAll}) {
    const std::string arm = fmt::format("mlt-p1/{}", algorithm);
    if (!was_asked_for(scenario, arm) || !was_asked_for(scenario, fmt::format("mlt-p0/{}", algorithm))) continue;
    json result{{"scenario", scenario.at("name")},
                {"arm", arm},
                {"what", "accuracy no more than 0.5 points below p = 0 (lower 95 % bound)"},
                {"limit", kLeastDifference},
                {"value", nullptr},
                {"low", nullptr},
                {"high", nullptr},
                {"met", nullptr},
                {"text", "not measured"}};
    const json* figure = figure_of(scenario, arm);
    if (figure != nullptr && figure->at("accuracy_difference").is_object()) {
      const json& difference = figure->at("accuracy_difference");
      result["value"] = difference["mean"];
      result["low"] = difference["low"];
      result["high"] = difference["high"];
      const std::string mean = fmt::format("{:+.2f} points", 100 * difference["mean"].get<double>());
      result["text"] = mean + ", two rounds at least give a bound";
      if (difference["low"].is_number()) {
        const double low = difference["low"];
        result["met"] = low > kLeastDifference;
        result["text"] = fmt::format("{}, lower bound {:+.2f}", mean, 100 * low);
      }
    }
    bars.push_back(std::move(result));
  }
}

// That no arm but the one that breaks the contract lost more than it may, and that replicas were equal bit for bit.
void add_contract_bars(const json& scenario, json& bars) {
  for (const json& figure : scenario.at("figures")) {
    if (figure.at("carrier") != "mlt-p1") continue;
    const json& missing = figure.at("missing_bytes");
    const bool lossy = !scenario.at("losses").empty();
    json met = nullptr;
    std::string text = "the plugin does not say what is missing";
    if (missing.is_number()) {
      met = figure.at("within_ledger") == true && figure.at("replicas_identical") == true &&
            (!lossy || figure.at("missing_in_every_run") == true);
      text = fmt::format("{:.0f} bytes missing{}; replicas {}", missing.get<double>(),
                         figure.at("missing_share").is_number()
                             ? fmt::format(", {:.3f} % of the eligible", 100 * figure.at("missing_share").get<double>())
                             : "",
                         figure.at("replicas_identical") == true ? "identical" : "NOT identical or not compared");
    }
    bars.push_back({{"scenario", scenario.at("name")},
                    {"arm", figure.at("name")},
                    {"what", lossy ? "something is missing in every run, all within the ledger; replicas identical"
                                   : "missing bytes within the ledger; replicas identical"},
                    {"limit", nullptr},
                    {"value", missing},
                    {"low", nullptr},
                    {"high", nullptr},
                    {"met", met},
                    {"text", text}});
  }
}

}  // namespace

json bars_of(const json& training) {
  json bars = json::array();
  for (const json& scenario : training.at("scenarios")) {
    add_time_bars(training, scenario, bars);
    add_growth_bars(scenario, bars);
    add_accuracy_bars(scenario, bars);
    add_contract_bars(scenario, bars);
  }
  return bars;
}

}  // namespace clustar::bench::ab::suite
