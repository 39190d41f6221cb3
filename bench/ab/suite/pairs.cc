#include "bench/ab/suite/pairs.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "bench/ab/suite/figures.h"
#include "bench/perf/statistics.h"

namespace clustar::bench::ab::suite {
namespace {

using nlohmann::json;

constexpr std::uint64_t kBootstrapSeed = 1;  // equal measurements, equal intervals
constexpr double kForever = std::numeric_limits<double>::infinity();

bool failed_itself(const json& run) { return run.contains("failed") && !run.value("unavailable", false); }

struct Outcome {
  enum class Kind { kAbsent, kReached, kMissed, kFailed };
  Kind kind = Kind::kAbsent;
  double seconds = 0;  // kMissed: what it spent
  bool censored() const { return kind == Kind::kMissed || kind == Kind::kFailed; }
};

// An arm that is left out because it failed has failed in the rounds that the others went on with, too.
Outcome outcome_of(const json& scenario, const std::string& arm, int round, Value value) {
  bool others_ran = false, failed_before = false;
  for (const json& run : scenario.at("runs")) {
    others_ran = others_ran || run.at("round") == round;
    if (run.at("arm") != arm) continue;
    failed_before = failed_before || failed_itself(run);
    if (run.at("round") != round) continue;
    if (run.contains("failed")) return {failed_itself(run) ? Outcome::Kind::kFailed : Outcome::Kind::kAbsent, 0};
    if (const auto seconds = value(run)) return {Outcome::Kind::kReached, *seconds};
    if (number(run, "train_s") > 0) return {Outcome::Kind::kMissed, number(run, "train_s")};
    return {};
  }
  const json* entry = find_named(scenario.at("arms"), arm);
  const bool left_out = entry != nullptr && !entry->at("left_out").is_null();
  return {left_out && failed_before && others_ran ? Outcome::Kind::kFailed : Outcome::Kind::kAbsent, 0};
}

// The least that the reference needed for what `run` of the arm did.
double least_seconds(const Outcome& reference, double limit_s, const json& run, Value value) {
  if (reference.kind != Outcome::Kind::kFailed) return reference.seconds;
  return value == step_seconds ? limit_s / std::max(number(run, "steps"), 1.0) : limit_s;
}

json estimate_json(const std::vector<double>& left, const std::vector<double>& right) {
  const perf::RatioEstimate ratio = perf::paired_ratio(left, right, kBootstrapSeed);
  const bool has_interval = left.size() > 1;
  return {{"ratio", ratio.ratio},
          {"low", has_interval ? json(ratio.low) : json(nullptr)},
          {"high", has_interval ? json(ratio.high) : json(nullptr)},
          {"pairs", left.size()}};
}

}  // namespace

double number(const json& run, const char* key) {
  const auto found = run.find(key);
  return found != run.end() && found->is_number() ? found->get<double>() : 0;
}

ByRound runs_of(const json& scenario, const std::string& arm) {
  ByRound runs;
  for (const json& run : scenario.at("runs")) {
    if (run.at("arm") == arm && !run.contains("failed")) runs[run.at("round")] = &run;
  }
  return runs;
}

Failures failures_of(const json& scenario, const std::string& arm) {
  Failures failures;
  for (const json& run : scenario.at("runs")) {
    if (run.at("arm") != arm || !failed_itself(run)) continue;
    ++failures.count;
    failures.why = run.at("failed");
  }
  return failures;
}

std::optional<double> step_seconds(const json& run) {
  const double steps = number(run, "steps");
  if (!(steps > 0) || !(number(run, "train_s") > 0)) return std::nullopt;
  return number(run, "train_s") / steps;
}

std::optional<double> seconds_to_target(const json& run) {
  const double seconds = number(run, "time_to_target_s");
  return seconds > 0 ? std::optional(seconds) : std::nullopt;
}

std::vector<double> values(const ByRound& runs, Value value) {
  std::vector<double> all;
  for (const auto& [round, run] : runs) {
    if (const auto one = value(*run)) all.push_back(*one);
  }
  return all;
}

json ratio_json(const ByRound& a, const ByRound& b, Value value) {
  std::vector<double> left, right;
  for (const auto& [round, run] : a) {
    const auto other = b.find(round);
    if (other == b.end()) continue;
    const auto x = value(*run), y = value(*other->second);
    if (!x || !y) continue;
    left.push_back(*x);
    right.push_back(*y);
  }
  return left.empty() ? json(nullptr) : estimate_json(left, right);
}

json censored_ratio(const json& training, const json& scenario, const std::string& reference, const std::string& arm,
                    Value value) {
  const int rounds = training.at("options").at("rounds");
  const double limit_s = number(training.at("options"), "limit_s");
  const ByRound good = runs_of(scenario, arm);
  std::vector<double> left, right;
  int censored_reference = 0, censored_arm = 0, neither = 0;
  for (int round = 1; round <= rounds; ++round) {
    const Outcome theirs = outcome_of(scenario, reference, round, value);
    const Outcome ours = outcome_of(scenario, arm, round, value);
    if (theirs.kind == Outcome::Kind::kAbsent || ours.kind == Outcome::Kind::kAbsent) continue;
    if (theirs.censored() && ours.censored()) {
      ++neither;
      continue;
    }
    censored_reference += theirs.censored() ? 1 : 0;
    censored_arm += ours.censored() ? 1 : 0;
    left.push_back(theirs.censored() ? least_seconds(theirs, limit_s, *good.at(round), value) : theirs.seconds);
    right.push_back(ours.censored() ? kForever : ours.seconds);
  }
  if (left.empty() && neither == 0) return nullptr;
  json result = left.empty() ? json{{"ratio", nullptr}, {"low", nullptr}, {"high", nullptr}, {"pairs", 0}}
                             : estimate_json(left, right);
  result.update({{"rounds", rounds},
                 {"censored_reference", censored_reference},
                 {"censored_arm", censored_arm},
                 {"neither", neither}});
  return result;
}

std::optional<double> censored_median(const json& scenario, const std::string& arm, Value value) {
  std::vector<double> all;
  for (const json& run : scenario.at("runs")) {
    if (run.at("arm") != arm || (run.contains("failed") && !failed_itself(run))) continue;
    all.push_back(run.contains("failed") ? kForever : value(run).value_or(kForever));
  }
  return all.empty() ? std::nullopt : std::optional(perf::median(all));
}

}  // namespace clustar::bench::ab::suite
