// How clustar train divides a step over micro-batches and ranks, and what layers send beside the gradients.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "bench/trainer/config.h"

namespace clustar::bench::cli {

// --initial-buckets, --no-rebuild-buckets, --accumulate, --optimizer-sharding and --traffic.
void add_parallel_options(CLI::App& command, trainer::TrainConfig& config);
// What of them contradicts the rest. Empty: all is well.
std::string parallel_contradiction(const trainer::TrainConfig& config, int ranks);

}  // namespace clustar::bench::cli
