#include "bench/ab/suite/figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "bench/ab/suite/arm.h"
#include "bench/ab/suite/bars.h"
#include "bench/ab/suite/pairs.h"
#include "bench/perf/statistics.h"

namespace clustar::bench::ab::suite {
namespace {

using nlohmann::json;

std::optional<double> images_per_second(const json& run) {
  const double value = number(run, "images_per_second");
  return value > 0 ? std::optional(value) : std::nullopt;
}

json median_json(const ByRound& runs, Value value, double unit = 1) {
  const std::vector<double> all = values(runs, value);
  return all.empty() ? json(nullptr) : json(perf::median(all) * unit);
}

// After the last epoch that both ran, so after equal steps: one that reached its target stopped early.
json accuracy_difference(const ByRound& a, const ByRound& b) {
  std::vector<double> differences;
  for (const auto& [round, run] : a) {
    const auto other = b.find(round);
    if (other == b.end()) continue;
    const json left = run->at("per_epoch").value("accuracy", json::array());
    const json right = other->second->at("per_epoch").value("accuracy", json::array());
    const std::size_t epochs = std::min(left.size(), right.size());
    if (epochs > 0) differences.push_back(left[epochs - 1].get<double>() - right[epochs - 1].get<double>());
  }
  const auto estimate = mean_estimate(differences);
  if (differences.empty()) return nullptr;
  return {{"mean", estimate ? estimate->mean : differences.front()},
          {"low", estimate ? json(estimate->low) : json(nullptr)},
          {"high", estimate ? json(estimate->high) : json(nullptr)},
          {"pairs", differences.size()}};
}

json pooled_quantile_ms(const ByRound& runs, double q) {
  std::vector<double> all;
  for (const auto& [round, run] : runs) {
    const json& steps = run->at("step_seconds");
    if (!steps.is_array()) continue;
    for (const json& one : steps) all.push_back(1000 * one.get<double>());
  }
  return all.empty() ? json(nullptr) : json(perf::quantile(all, q));
}

// What of the gradients is missing, and whether it may be.
json loss_json(const ByRound& runs) {
  double missing = 0, eligible = 0, delivered = 0, charge = 0, lost = 0, expected = 0;
  bool known = !runs.empty(), within = true, in_every_run = !runs.empty();
  json bound = nullptr;
  for (const auto& [round, run] : runs) {
    known = known && run->at("missing_bytes").is_number();
    missing += number(*run, "missing_bytes");
    eligible += number(*run, "eligible_bytes");
    delivered += number(*run, "delivered_bytes");
    lost += number(*run, "missing_contributions");
    expected += number(*run, "expected_contributions");
    charge = std::max(charge, number(*run, "worst_charge"));
    bound = run->at("loss_bound");
    within = within && !run->contains("contract_broken");
    in_every_run = in_every_run && number(*run, "missing_bytes") > 0;
  }
  if (!known) return {{"missing_bytes", nullptr}};
  return {{"missing_bytes", missing},
          {"eligible_bytes", eligible},
          {"delivered_bytes", delivered},
          {"missing_share", eligible > 0 ? json(missing / eligible) : json(nullptr)},
          {"bound", bound},
          {"worst_charge", charge},
          {"within_ledger", within},
          {"missing_in_every_run", in_every_run},
          {"missing_contributions", expected > 0 ? json(lost / expected) : json(nullptr)}};
}

// true: in every run; null: some run did not look.
json replicas_json(const ByRound& runs) {
  json identical = true;
  for (const auto& [round, run] : runs) {
    const json& one = run->at("replicas_identical");
    if (one == false) return false;
    if (one.is_null()) identical = nullptr;
  }
  return identical;
}

json sums_json(const ByRound& runs) {
  json sums = json::object();
  for (const char* key : {"switch_lost_on_purpose", "switch_dropped_full", "switch_marked", "super_packets"}) {
    double sum = 0;
    for (const auto& [round, run] : runs) sum += number(*run, key);
    sums[key] = sum;
  }
  return sums;
}

std::optional<double> background_bps(const json& run) {
  const auto found = run.find("background");
  if (found == run.end() || !found->is_object()) return std::nullopt;
  return number(*found, "goodput_bps");
}

std::optional<double> final_accuracy(const json& run) {
  return run.at("accuracy").is_number() ? std::optional(run.at("accuracy").get<double>()) : std::nullopt;
}

// The better of those that were run, "" for none: by the median of the seconds to a target, or of a step, in which what
// failed or missed counts as infinite.
std::string better(const json& scenario, const std::string& algorithm, const std::vector<std::string>& carriers,
                   Value value) {
  std::string best;
  double best_s = 0;
  for (const std::string& carrier : carriers) {
    const std::string name = carrier + "/" + algorithm;
    const auto seconds = censored_median(scenario, name, value);
    if (!seconds || (!best.empty() && *seconds >= best_s)) continue;
    best = name;
    best_s = *seconds;
  }
  return best;
}

struct Reference {
  std::string name;  // "": none
  std::string note;  // why it is not the better of both TCPs with a short minimum RTO; "" when it is
  bool fallback = false;
};

std::string why_absent(const json& scenario, const std::string& arm) {
  const json* entry = find_named(scenario.at("arms"), arm);
  if (entry == nullptr) return arm + " is not among the arms";
  const json& left_out = entry->at("left_out");
  return left_out.is_null() ? arm + " was not run"
                            : fmt::format("{} was left out: {}", arm, left_out.get<std::string>());
}

Reference reference_of(const json& training, const json& scenario, const std::string& algorithm) {
  const std::string asked = training.at("reference");
  const Value value = training.at("options").at("target_accuracy").is_null() ? step_seconds : seconds_to_target;
  if (asked != "auto") {
    return {better(scenario, algorithm, {asked}, value), "the bar needs both rto5 arms: --reference is " + asked};
  }
  const std::vector<std::string> wanted{"tcp-cubic-rto5", "tcp-bbr-rto5"};
  Reference reference{better(scenario, algorithm, wanted, value), ""};
  for (const std::string& carrier : wanted) {
    const std::string name = carrier + "/" + algorithm;
    if (censored_median(scenario, name, value)) continue;
    reference.note += (reference.note.empty() ? "the bar needs both rto5 arms: " : "; ") + why_absent(scenario, name);
  }
  if (reference.name.empty()) {
    reference.name = better(scenario, algorithm, {"tcp-cubic", "tcp-bbr"}, value);
    reference.fallback = !reference.name.empty();
  }
  return reference;
}

json figure(const json& training, const json& scenario, const json& arm) {
  const std::string name = arm.at("name"), algorithm = arm.at("algorithm");
  const ByRound runs = runs_of(scenario, name);
  const Reference chosen = reference_of(training, scenario, reference_algorithm(algorithm));
  const std::string& reference = chosen.name;
  const bool has_target = !training.at("options").at("target_accuracy").is_null();
  const ByRound theirs = runs_of(scenario, reference);
  const auto* clean = find_named(training.at("scenarios"), "clean");
  const std::vector<double> reached = values(runs, seconds_to_target);
  const std::vector<double> accuracies = values(runs, final_accuracy);
  double mean_accuracy = 0;
  for (const double one : accuracies) mean_accuracy += one / static_cast<double>(accuracies.size());
  json result{
      {"name", name},
      {"carrier", arm.at("carrier")},
      {"algorithm", algorithm},
      {"runs", runs.size()},
      {"reference", reference.empty() ? json(nullptr) : json(reference)},
      {"reference_note", chosen.note.empty() ? json(nullptr) : json(chosen.note)},
      {"reference_is_fallback", chosen.fallback},
      {"images_per_second", median_json(runs, images_per_second)},
      {"images_per_second_reference", median_json(theirs, images_per_second)},
      {"images_ratio", ratio_json(runs, theirs, images_per_second)},
      {"step_ms", median_json(runs, step_seconds, 1000)},
      {"step_p50_ms", pooled_quantile_ms(runs, 0.5)},
      {"step_p99_ms", pooled_quantile_ms(runs, 0.99)},
      {"time_to_accuracy_s", median_json(runs, seconds_to_target)},
      {"reached", reached.size()},
      {"time_ratio",
       has_target ? censored_ratio(training, scenario, reference, name, seconds_to_target) : json(nullptr)},
      {"step_ratio", censored_ratio(training, scenario, reference, name, step_seconds)},
      {"growth",
       clean == nullptr || *clean == scenario ? json(nullptr) : ratio_json(runs, runs_of(*clean, name), step_seconds)},
      {"accuracy", accuracies.empty() ? json(nullptr) : json(mean_accuracy)},
      {"accuracy_difference", name == "mlt-p0/" + algorithm
                                  ? json(nullptr)
                                  : accuracy_difference(runs, runs_of(scenario, "mlt-p0/" + algorithm))},
      {"replicas_identical", replicas_json(runs)},
      {"background_bps", median_json(runs, background_bps)}};
  result.update(loss_json(runs));
  result.update(sums_json(runs));
  return result;
}

std::size_t planned_runs(const json& training) {
  return static_cast<std::size_t>(training.at("options").at("rounds").get<int>());
}

void add_arm_warnings(const json& training, const json& scenario, const json& arm, json& all) {
  const std::string name = arm.at("name"), where = scenario.at("name").get<std::string>() + ": ";
  std::size_t failed = 0, before = 0, good = 0;
  std::string why, why_before;
  for (const json& run : scenario.at("runs")) {
    if (run.at("arm") != name) continue;
    if (run.contains("failed_before")) {
      ++before;
      why_before = run["failed_before"].back();
    }
    if (!run.contains("failed")) {
      ++good;
      continue;
    }
    ++failed;
    why = run["failed"];
  }
  if (const json& left_out = arm.at("left_out"); !left_out.is_null()) {
    all.push_back(fmt::format("{}{} was left out: {}", where, name, left_out.get<std::string>()));
  } else if (failed > 0) {
    all.push_back(fmt::format("{}{} failed in {} of its runs: {}", where, name, failed, why));
  }
  if (before > 0) {
    all.push_back(fmt::format("{}{} failed before in {} of its runs, which were tried again: {}", where, name, before,
                              why_before));
  }
  if (good < planned_runs(training)) {
    all.push_back(fmt::format("{}{} has {} good runs of {}", where, name, good, planned_runs(training)));
  }
}

void add_reference_warnings(const json& scenario, json& all) {
  for (const char* algorithm : kAlgorithms) {
    const json* figure = find_named(scenario.at("figures"), algorithm, "algorithm");
    if (figure == nullptr || figure->value("reference_is_fallback", false) == false) continue;
    all.push_back(fmt::format("{}: ratios of {} are taken to {}, which has the kernel's minimum RTO; {}",
                              scenario.at("name").get<std::string>(), algorithm,
                              figure->at("reference").get<std::string>(),
                              figure->at("reference_note").get<std::string>()));
  }
}

void add_place_warnings(const json& scenario, json& all) {
  const std::string name = scenario.at("name");
  for (const json& problem : scenario.at("problems")) all.push_back(name + ": " + problem.get<std::string>());
  for (const json& problem : scenario.value("earlier_problems", json::array())) {
    all.push_back(name + ": before it went on: " + problem.get<std::string>());
  }
  json places = scenario.value("earlier_places", json::array());
  places.push_back(scenario.at("place"));
  for (const json& place : places) {
    if (!place.is_object() || place["proof"]["per_packet"] != false) continue;
    all.push_back(name + ": the proof that the switch's queues hold packets, and no super-packets, failed");
    break;
  }
}

json warnings_of(const json& training) {
  json all = json::array();
  const int rounds = training.at("options").at("rounds");
  if (rounds < 5) all.push_back(fmt::format("{} of at least 5 rounds: intervals are no basis for a verdict", rounds));
  for (const json& scenario : training.at("scenarios")) {
    const std::string name = scenario.at("name");
    add_place_warnings(scenario, all);
    for (const json& arm : scenario.at("arms")) add_arm_warnings(training, scenario, arm, all);
    add_reference_warnings(scenario, all);
    double super = 0;
    std::size_t disturbed = 0;
    for (const json& run : scenario.at("runs")) {
      super += number(run, "super_packets");
      disturbed += run.value("other_cpu_disturbs", false) ? 1u : 0u;
    }
    if (super > 0) all.push_back(fmt::format("{}: {:.0f} super-packets passed the switches during runs", name, super));
    if (disturbed > 0) {
      all.push_back(fmt::format("{}: others used more than 5 % of a core in {} of {} runs", name, disturbed,
                                scenario.at("runs").size()));
    }
  }
  if (training.at("interrupted") == true) all.push_back(training.at("ended_by"));
  return all;
}

// Two-sided 95 %, by degrees of freedom from 1; beyond them it hardly changes.
double student(std::size_t freedom) {
  constexpr double kTable[] = {12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
                               2.201,  2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
                               2.080,  2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042};
  return kTable[std::min(freedom, std::size(kTable)) - 1];
}

}  // namespace

std::optional<MeanEstimate> mean_estimate(std::span<const double> values) {
  if (values.size() < 2) return std::nullopt;
  const auto n = static_cast<double>(values.size());
  double mean = 0, squares = 0;
  for (const double value : values) mean += value / n;
  for (const double value : values) squares += (value - mean) * (value - mean);
  const double half = student(values.size() - 1) * std::sqrt(squares / (n - 1) / n);
  return MeanEstimate{mean, mean - half, mean + half};
}

void judge(json& training) {
  for (json& scenario : training.at("scenarios")) {
    json figures = json::array();
    for (const json& arm : scenario.at("arms")) {
      // One that only failed has a figure, too: that it was no sooner than the reference.
      if (runs_of(scenario, arm.at("name")).empty() && failures_of(scenario, arm.at("name")).count == 0) continue;
      figures.push_back(figure(training, scenario, arm));
    }
    scenario["figures"] = std::move(figures);
  }
  training["bars"] = bars_of(training);
  training["warnings"] = warnings_of(training);
}

json comparisons(const json& training) {
  json rows = json::array();
  for (const json& scenario : training.at("scenarios")) {
    for (const json& one : scenario.at("figures")) {
      if (one.at("reference").is_null() || one.at("reference") == one.at("name")) continue;
      const json& ratio = one.at("images_ratio");
      if (!ratio.is_object()) continue;
      const auto part = [](const json& estimate, const char* key) {
        return estimate.is_object() ? estimate.at(key) : json(nullptr);
      };
      rows.push_back({{"scenario", scenario.at("name")},
                      {"model", training.at("options").at("model")},
                      {"baseline", one.at("reference")},
                      {"candidate", one.at("name")},
                      {"images_per_second_a", one.at("images_per_second_reference")},
                      {"images_per_second_b", one.at("images_per_second")},
                      {"ratio", part(ratio, "ratio")},
                      {"ratio_low", part(ratio, "low")},
                      {"ratio_high", part(ratio, "high")},
                      {"time_to_accuracy_ratio", part(one.at("time_ratio"), "ratio")},
                      {"ceiling_ratio", nullptr}});
    }
  }
  return rows;
}

std::string interval_text(const json& estimate, int digits) {
  if (!estimate.is_object()) return "-";
  const json& middle = estimate.contains("ratio") ? estimate["ratio"] : estimate["mean"];
  if (!middle.is_number()) return "-";
  if (!estimate["low"].is_number()) return fmt::format("{:.{}f}", middle.get<double>(), digits);
  return fmt::format("{:.{}f} ({:.{}f} to {:.{}f})", middle.get<double>(), digits, estimate["low"].get<double>(),
                     digits, estimate["high"].get<double>(), digits);
}

const json* find_named(const json& list, const std::string& name, const char* key) {
  for (const json& one : list) {
    if (one.at(key) == name) return &one;
  }
  return nullptr;
}

}  // namespace clustar::bench::ab::suite
