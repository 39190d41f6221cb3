// What `perf` and `train` do to the environment of the plugin they start: settings of an arm, and faults on purpose.
#pragma once

#include <string>

#include "bench/ab/arm.h"
#include "transport/base/config.h"
#include "transport/base/result.h"

namespace clustar::bench::cli {

// The fraction that --inject-loss takes.
inline constexpr double kMaxInjectedLoss = 0.5;

struct Faults {
  std::string text;  // as FaultSpec's; empty: none
  double loss = 0;   // the fraction that is lost at random
};
// Of --inject-loss and --inject-faults, of which one may be given. kInvalidArgument: both, or what is no fault.
Result<Faults> parse_faults(double loss, const std::string& text);

// The list of --env, --vs-env.
Result<ab::Settings> parse_environment(const std::string& text);

// What our plugin would read in an arm with these settings, above the inherited ones.
Result<Config> config_of(const ab::Settings& settings);

// Adds the faults to an arm. kInvalidArgument: its transport is not mlt, or it has faults already.
Result<void> inject(const Faults& faults, ab::Settings& settings);

inline bool runs_mlt(const Config& config) {
  return config.transport == "mlt" || (config.transport == "auto" && config.require == std::vector<std::string>{"mlt"});
}

}  // namespace clustar::bench::cli
