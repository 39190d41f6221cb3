#pragma once

#include <cstddef>
#include <string>

#include "tests/nccl_host/ranks/ranks.h"

namespace nccl_host {

inline constexpr const char* kScenarios = "nccl-host-scenarios";

struct ScenarioOptions : RankOptions {
  std::string scenario;
  int times = 0;         // 0: the scenario's own
  int stop_for = 20;     // seconds
  int error_within = 0;  // seconds; 0: the scenario's own
  bool any_error = false;
  size_t bytes = 1 << 20;
  std::string cut;
};

// Prints what is allowed and ends the process with status 2 where an argument is not.
ScenarioOptions ScenarioOrExit(int argc, char** argv);

}  // namespace nccl_host
