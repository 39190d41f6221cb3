#include "bench/lossy/suite.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <stdlib.h>

#include <array>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "bench/ab/interrupt.h"
#include "bench/fabric/fabric.h"
#include "bench/lossy/arm.h"
#include "bench/lossy/experiment.h"
#include "bench/lossy/machine.h"
#include "bench/lossy/results.h"
#include "bench/lossy/table.h"

namespace clustar::bench::lossy {
namespace {

using nlohmann::json;

json load_average() {
  std::array<double, 3> load{};
  return getloadavg(load.data(), 3) == 3 ? json(load) : json(nullptr);
}

std::string own_executable() {
  std::error_code error;
  const auto path = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? "/proc/self/exe" : path.string();
}

Result<void> check(const SuiteOptions& options, const std::vector<Scenario>& chosen) {
  std::set<std::string> allowed;
  for (const Scenario& scenario : chosen) {
    for (const std::string& arm : scenario.arms) {
      for (std::string& job : jobs_of(arm)) allowed.insert(std::move(job));
    }
    allowed.insert(scenario.named_arms.begin(), scenario.named_arms.end());
  }
  for (const std::string& name : options.arms) {
    if (const auto arm = find_arm(name); !arm) return tl::unexpected(arm.error());
    if (allowed.contains(name)) continue;
    return fail(ErrorCode::kInvalidArgument, fmt::format("no scenario of this run has the arm '{}'; their arms are: {}",
                                                         name, fmt::join(allowed, ", ")));
  }
  if (options.rounds >= 0 && options.rounds <= 1'000'000) return {};
  return fail(ErrorCode::kInvalidArgument, "rounds: 1 to 1000000 are possible");
}

std::vector<Scenario> with_arms(const std::vector<Scenario>& chosen, const Run& run) {
  std::vector<Scenario> left;
  for (const Scenario& scenario : chosen) {
    if (!arms_of(scenario, run).empty()) left.push_back(scenario);
  }
  return left;
}

void announce(const std::vector<Scenario>& scenarios, const Run& run) {
  if (!run.progress) return;
  double estimate = 0;
  for (const Scenario& scenario : scenarios) estimate += estimated_seconds(scenario, run);
  run.progress(estimate < 120 ? fmt::format("this takes about {:.0f} s", estimate)
                              : fmt::format("this takes about {:.0f} minutes", std::ceil(estimate / 60)));
}

}  // namespace

Result<json> run_suite(const SuiteOptions& options, const SuiteEvents& events) {
  const auto chosen = choose_scenarios(options.scenarios, options.full);
  if (!chosen) return tl::unexpected(chosen.error());
  if (const auto ok = check(options, *chosen); !ok) return tl::unexpected(ok.error());
  const Run run{.executable = options.executable.empty() ? own_executable() : options.executable,
                .rounds = options.rounds,
                .quick = options.quick,
                .arms = options.arms,
                .seed = options.seed,
                .progress = events.progress};
  const std::vector<Scenario> scenarios = with_arms(*chosen, run);
  // The estimate is for users who may run it.
  if (const auto ok = fabric::check_root(); !ok) return tl::unexpected(ok.error());
  const ab::Interrupt interrupt;
  announce(scenarios, run);
  const OtherCpuWatch watch;
  json results{{"scenarios", json::array()},
               {"interrupted", false},
               {"unfinished", json::array()},
               {"load_average_before", load_average()}};
  bool goes_on = true;
  for (const Scenario& scenario : scenarios) {
    if (!goes_on) {
      results["unfinished"].push_back(scenario.name);
      continue;
    }
    const auto outcome = conduct(scenario, run);
    if (outcome) {
      results["scenarios"].push_back(to_json(*outcome));
      if (events.scenario) events.scenario(table(results["scenarios"].back()));
      continue;
    }
    results["interrupted"] = ab::Interrupt::signal_number() != 0;
    // What is complete is worth keeping.
    if (results["scenarios"].empty() && results["interrupted"] == false) return tl::unexpected(outcome.error());
    results["ended_by"] = outcome.error().message;
    results["unfinished"].push_back(scenario.name);
    goes_on = false;
  }
  results["load_average_after"] = load_average();
  const auto other = watch.now();
  results["other_cpu"] = other ? to_json(*other) : json(nullptr);
  return results;
}

namespace {

bool has_job(const json& arm, const std::string& name) {
  return ("+" + arm["name"].get<std::string>() + "+").find("+" + name + "+") != std::string::npos;
}

std::string reason_of(const json& skipped) { return skipped.value("skipped", std::string()); }

// Of the arm of that name, alone or as one of two jobs. Empty: it was measured somewhere.
std::string why_never_measured(const json& results, const std::string& name) {
  std::string why_scenario, why_arm;
  for (const json& scenario : results["scenarios"]) {
    if (!reason_of(scenario).empty()) why_scenario = reason_of(scenario);
    for (const json& arm : scenario["arms"]) {
      if (!has_job(arm, name)) continue;
      if (reason_of(arm).empty()) return {};
      why_arm = reason_of(arm);
    }
  }
  if (!why_arm.empty()) return why_arm;
  return why_scenario.empty() ? "no scenario that was run has it" : why_scenario;
}

// Of a scenario. Empty: one arm of it was measured, or has failed, which is told by itself.
std::string why_not_measured(const json& results, const std::string& name) {
  for (const json& scenario : results["scenarios"]) {
    if (scenario["name"] != name) continue;
    std::string why = reason_of(scenario);
    for (const json& arm : scenario["arms"]) {
      if (reason_of(arm).empty()) return {};
      if (why.empty()) why = reason_of(arm);
    }
    return why;
  }
  return "it has none of the arms that are named";
}

}  // namespace

std::vector<std::string> failures(const json& results, const Asked& asked) {
  std::vector<std::string> failed;
  if (!results.contains("ended_by")) {
    for (const std::string& name : asked.arms) {
      const std::string why = why_never_measured(results, name);
      if (!why.empty()) failed.push_back(fmt::format("--arms {}: not measured: {}", name, why));
    }
    for (const std::string& name : asked.scenarios) {
      const std::string why = why_not_measured(results, name);
      if (!why.empty()) failed.push_back(fmt::format("--scenario {}: not measured: {}", name, why));
    }
  }
  if (const auto ended = results.find("ended_by"); ended != results.end()) {
    failed.push_back(fmt::format("{}; complete and kept: {} scenarios, not measured: {}", ended->get<std::string>(),
                                 results["scenarios"].size(),
                                 fmt::join(results["unfinished"].get<std::vector<std::string>>(), ", ")));
  }
  for (const json& scenario : results["scenarios"]) {
    for (const json& arm : scenario["arms"]) {
      if (!arm.contains("failure")) continue;
      failed.push_back(fmt::format("{}/{}: {}", scenario["name"].get<std::string>(), arm["name"].get<std::string>(),
                                   arm["failure"].get<std::string>()));
    }
  }
  return failed;
}

}  // namespace clustar::bench::lossy
