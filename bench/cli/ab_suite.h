// clustar ab --scenario: training in trouble.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "bench/ab/experiment.h"
#include "bench/ab/suite/scenario.h"
#include "bench/cli/ab_output.h"

namespace clustar::bench::cli {

struct AbSuiteArguments {
  std::vector<std::string> scenarios;
  std::vector<std::string> arms;
  std::vector<std::string> algorithms;
  std::string reference = "auto";
  std::string missing = "rescale";
  int limit_s = 1800;
  std::string resume;
  bool retry_failed = false;
};

// What the suite shares with the comparison of two arms.
struct AbSuiteInput {
  ab::Plan training;  // baseline.plugin, train, channels and stall_timeout_s
  ab::suite::Changes changes;
  int rounds = 0;
  AbOutput output;
  bool bar = false;  // within a run
};

// Returns --scenario, by which the suite is asked for.
CLI::Option* add_ab_suite_options(CLI::App& command, AbSuiteArguments& arguments);
// Returns the exit status.
int run_ab_suite(const AbSuiteArguments& arguments, const AbSuiteInput& input);

}  // namespace clustar::bench::cli
