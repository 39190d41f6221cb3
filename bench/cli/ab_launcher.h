// clustar ab --launcher: on a cluster, by mpirun, torchrun or srun.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "bench/ab/experiment.h"
#include "transport/base/result.h"

namespace clustar::bench::cli {

struct AbLauncherArguments {
  std::string launcher;  // empty: none
  std::string more;
  std::string root;
  CLI::Option* given = nullptr;

  bool asked() const { return given != nullptr && given->count() > 0; }
};

void add_ab_launcher_options(CLI::App& command, AbLauncherArguments& arguments);

// Fills `plan.cluster`, whose arms are there. kInvalidArgument: what is not for a cluster, or missing.
Result<void> complete_ab_launcher(const AbLauncherArguments& arguments, ab::Plan& plan);
// Before the first run: the launcher is there, and the one that is meant. kUnavailable with what to do.
Result<void> find_launcher(ab::Plan& plan);

}  // namespace clustar::bench::cli
