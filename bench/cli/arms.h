// What `perf` and `train` do to the environment of the plugin they start: settings of an arm, and faults on purpose.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "bench/ab/arm.h"
#include "transport/base/config.h"
#include "transport/base/result.h"

namespace clustar::bench::cli {

struct Faults {
  std::string text;  // as FaultSpec's; empty: none
  double loss = 0;   // the fraction that is lost at random
};
// --inject-loss and --inject-faults; `what` loses packets: "Lose this fraction of `what`".
void add_fault_options(CLI::App& command, double& loss, std::string& faults, const std::string& what);
// Of these two, of which one may be given. kInvalidArgument: both, or what is no fault.
Result<Faults> parse_faults(double loss, const std::string& text);

// The list of --env, --vs-env.
Result<ab::Settings> parse_environment(const std::string& text);

// What our plugin would read in an arm with these settings, above the inherited ones.
Result<Config> config_of(const ab::Settings& settings);

// Adds the faults to an arm. kInvalidArgument: its transport is not mlt, or it has faults already.
Result<void> inject(const Faults& faults, ab::Settings& settings);

}  // namespace clustar::bench::cli
