// clustar ab --scaling: the same training on more and more ranks of one fabric.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "bench/ab/scaling/conduct.h"
#include "bench/cli/ab_output.h"

namespace clustar::bench::cli {

struct AbScalingArguments {
  std::string counts;
  ab::scaling::BatchRule rule = ab::scaling::BatchRule::kWeak;
};

struct AbScalingInput {
  ab::scaling::ScalingPlan plan;
  AbOutput output;
};

// Returns --scaling, by which it is asked for.
CLI::Option* add_ab_scaling_options(CLI::App& command, AbScalingArguments& arguments);
// Returns the exit status.
int run_ab_scaling(const AbScalingInput& input);

}  // namespace clustar::bench::cli
