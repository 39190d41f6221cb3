// `clustar perf --suite lossy`: the scenarios one after the other.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "transport/base/result.h"

namespace clustar::bench::lossy {

struct SuiteOptions {
  std::string executable = {};              // `clustar`, for the workers; empty: this one
  std::vector<std::string> scenarios = {};  // empty: all
  std::vector<std::string> arms = {};       // empty: those of each scenario
  int rounds = 0;                           // 0: those of each scenario
  bool quick = false;                       // few rounds and arms: about a minute
  bool full = false;                        // situations beyond the bars, too
  std::uint64_t seed = 1;                   // of losses and bursts
};

struct SuiteEvents {
  std::function<void(const std::string&)> progress;        // now and then, one line
  std::function<void(const std::string& table)> scenario;  // each scenario's table
};

// {"scenarios": [...], "interrupted", "unfinished": [names], "ended_by", "load_average_before", "load_average_after",
// "other_cpu"}. SIGINT, SIGTERM and SIGHUP, and a fabric that cannot be made any more, end it early: the scenarios that
// are complete are kept, and "ended_by" says why. Nothing of it is left on the machine. Errors: kInvalidArgument: names
// or rounds. kUnavailable: no fabric can be made here.
Result<nlohmann::json> run_suite(const SuiteOptions& options, const SuiteEvents& events);

// What was chosen by name, and so has to be measured.
struct Asked {
  std::vector<std::string> scenarios;
  std::vector<std::string> arms;
};

// What went wrong in run_suite()'s result, for people: why it ended early, arms that failed, "scenario/arm: why", and
// what was asked for by its name and is not measured, since this build or machine cannot.
std::vector<std::string> failures(const nlohmann::json& results, const Asked& asked = {});

}  // namespace clustar::bench::lossy
