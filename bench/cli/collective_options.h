// --collective and --nccl-library of clustar train.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "bench/trainer/config.h"

namespace clustar::bench::cli {

void add_collective_options(CLI::App& command, trainer::TrainConfig& config, trainer::RankOptions& rank);

// What the options ask for and NCCL's collectives cannot do. Empty: all is well.
std::string nccl_contradiction(const trainer::TrainConfig& config, const trainer::RankOptions& rank);

}  // namespace clustar::bench::cli
