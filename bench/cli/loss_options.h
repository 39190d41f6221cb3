// --loss-tolerance: what it sets in the environment of the plugin, and what may then be missing at most.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>

#include "bench/ab/arm.h"
#include "transport/base/config.h"
#include "transport/base/result.h"

namespace clustar::bench::cli {

// Returns the option, so that the caller can tell 0 from nothing.
CLI::Option* add_loss_option(CLI::App& command, double& tolerance);

// Adds to `settings` what lets all-reduces lose `tolerance` (above 0, up to 0.1) of their bytes; rules, warm-up and the
// rest that the user set stay. kInvalidArgument: settings that our plugin refuses, a transport that cannot lose.
// `direct`: they are exchanges by send and receive, whose rule no other implies.
Result<void> tolerate_loss(double tolerance, const std::string& rules, ab::Settings& settings);

// The most that the plugin may lose of what is eligible on a rank, in parts per million; 0: nobody opted in. Error:
// rules that the plugin would refuse.
Result<std::uint32_t> loss_bound_ppm(const Config& config);

}  // namespace clustar::bench::cli
