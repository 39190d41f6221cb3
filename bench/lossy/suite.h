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

// {"scenarios": [...], "load_average_before", "load_average_after", "other_cpu"}. kInvalidArgument: names or rounds.
// kUnavailable: no fabric can be made here. kSystem "interrupted" after SIGINT, SIGTERM or SIGHUP; nothing is left
// then.
Result<nlohmann::json> run_suite(const SuiteOptions& options, const SuiteEvents& events);

// Names of arms that failed, "scenario/arm: why"; of run_suite()'s result.
std::vector<std::string> failures(const nlohmann::json& results);

}  // namespace clustar::bench::lossy
