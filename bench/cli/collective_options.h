// What sums the gradients of clustar train, and when the next step waits for them.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "bench/trainer/config.h"

namespace clustar::bench::cli {

void add_collective_options(CLI::App& command, trainer::TrainConfig& config, trainer::RankOptions& rank);

// --overlap-forward and --front-buckets, and what of them contradicts the rest. Empty: all is well.
void add_overlap_options(CLI::App& command, trainer::TrainConfig& config);
std::string overlap_contradiction(const trainer::TrainConfig& config, int ranks);

// What the options of `command` ask for and the chosen collectives cannot do. Empty: all is well.
std::string collective_contradiction(const CLI::App& command, const trainer::TrainConfig& config);

}  // namespace clustar::bench::cli
