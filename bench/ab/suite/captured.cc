#include "bench/ab/suite/captured.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "bench/ab/suite/arm.h"
#include "bench/ab/suite/figures.h"
#include "bench/ab/suite/pairs.h"
#include "bench/perf/statistics.h"

namespace clustar::bench::ab::suite {
namespace {

using nlohmann::json;

constexpr const char* kClean = "clean";
constexpr const char* kTunedTcp[]{"tcp-cubic-rto5", "tcp-bbr-rto5"};

struct Limit {
  const char* scenario;
  const char* algorithm;
  double gain;
};
constexpr Limit kLimits[]{{"gray", kRing, 0.75},      {"gray", kAllToAll, 1.0},   {"bursts", kRing, 0.4},
                          {"bursts", kAllToAll, 0.7}, {"long-haul", kRing, 0.75}, {"long-haul", kAllToAll, 0.75}};

std::optional<double> median_step(const ByRound& runs) {
  const std::vector<double> seconds = values(runs, step_seconds);
  if (seconds.empty()) return std::nullopt;
  return perf::spread(seconds).median;
}

struct Tcp {
  std::string name;
  double step_s = 0;
  ByRound runs;
};

std::optional<Tcp> better_tcp(const json& scenario, const std::string& algorithm) {
  std::optional<Tcp> best;
  for (const char* carrier : kTunedTcp) {
    const std::string name = fmt::format("{}/{}", carrier, algorithm);
    ByRound runs = runs_of(scenario, name);
    const auto step_s = median_step(runs);
    if (step_s && (!best || *step_s < best->step_s)) best = Tcp{name, *step_s, std::move(runs)};
  }
  return best;
}

// Round by round; the clean lines are another fabric, so their median stands for all rounds.
std::vector<double> gains_of(const ByRound& arm, const Tcp& tcp, const Tcp& clean) {
  std::vector<double> gains;
  for (const auto& [round, run] : arm) {
    const auto beside = tcp.runs.find(round);
    const auto own = step_seconds(*run);
    if (beside == tcp.runs.end() || !own) continue;
    const auto its = step_seconds(*beside->second);
    if (its && *its > clean.step_s) gains.push_back((*its - *own) / (*its - clean.step_s));
  }
  return gains;
}

json limit_of(const json& scenario, const std::string& algorithm) {
  for (const Limit& limit : kLimits) {
    if (scenario.at("name") == limit.scenario && algorithm == limit.algorithm) return limit.gain;
  }
  return nullptr;
}

constexpr std::uint64_t kBootstrapSeed = 1;  // equal measurements, equal intervals

// Fills in the interval, and of one with a bar what it is worth.
void judge(const std::vector<double>& gains, std::size_t rounds, json& one) {
  const bool enough = gains.size() >= kLeastPairs;
  const perf::MedianEstimate estimate = perf::median_estimate(gains, kBootstrapSeed);
  if (enough) {
    one["interval_low"] = estimate.low;
    one["interval_high"] = estimate.high;
  }
  if (one["limit"].is_null()) return;
  const double limit = one["limit"];
  if (!enough) {
    one["verdict"] = fmt::format("no verdict: {} of {} rounds", gains.size(), kLeastPairs);
  } else if (gains.size() != rounds) {
    one["verdict"] = fmt::format("no verdict: {} of {} rounds are missing", rounds - gains.size(), rounds);
  } else {
    one["met"] = estimate.low >= limit;
    one["verdict"] = estimate.low >= limit   ? "met"
                     : estimate.high < limit ? "NOT MET"
                                             : "not shown: the interval includes it";
  }
}

}  // namespace

json captured_gains(const json& training) {
  json all = json::array();
  const json* clean_lines = find_named(training.at("scenarios"), kClean);
  if (clean_lines == nullptr) return all;
  const std::size_t rounds = training.at("options").at("rounds");
  for (const json& scenario : training.at("scenarios")) {
    if (scenario.at("name") == kClean) continue;
    for (const json& arm : scenario.at("arms")) {
      const std::string algorithm = arm.at("algorithm");
      if (!arm.at("carrier").get<std::string>().starts_with("mlt")) continue;
      const auto tcp = better_tcp(scenario, reference_algorithm(algorithm));
      const auto clean = better_tcp(*clean_lines, reference_algorithm(algorithm));
      if (!tcp || !clean) continue;
      std::vector<double> gains = gains_of(runs_of(scenario, arm.at("name")), *tcp, *clean);
      if (gains.empty()) continue;
      std::sort(gains.begin(), gains.end());
      const double median = perf::spread(gains).median;
      const json limit = limit_of(scenario, algorithm);
      json one{{"scenario", scenario.at("name")},
               {"arm", arm.at("name")},
               {"tcp", tcp->name},
               {"clean", clean->name},
               {"gain", median},
               {"low", gains.front()},
               {"high", gains.back()},
               {"interval_low", nullptr},
               {"interval_high", nullptr},
               {"rounds", gains.size()},
               {"limit", limit},
               {"met", nullptr},
               {"verdict", nullptr}};
      judge(gains, rounds, one);
      all.push_back(std::move(one));
    }
  }
  return all;
}

std::string captured_text(const json& gains) {
  if (gains.empty()) return {};
  std::string text =
      "\ncaptured gain: of what a step of the better tuned TCP takes longer than on clean lines (median of the rounds, "
      "least to largest)\n";
  for (const json& one : gains) {
    text += fmt::format("  {:<10} {:<22}{:>7.2f}  ({:.2f} to {:.2f}), beside {}", one.at("scenario").get<std::string>(),
                        one.at("arm").get<std::string>(), one.at("gain").get<double>(), one.at("low").get<double>(),
                        one.at("high").get<double>(), one.at("tcp").get<std::string>());
    if (!one.at("interval_low").is_null()) {
      text += fmt::format("; 95 % interval {:.2f} to {:.2f}", one.at("interval_low").get<double>(),
                          one.at("interval_high").get<double>());
    }
    if (!one.at("limit").is_null()) {
      text += fmt::format("; at least {:g}: {}", one.at("limit").get<double>(), one.at("verdict").get<std::string>());
    }
    text += "\n";
  }
  return text;
}

}  // namespace clustar::bench::ab::suite
