// The options of `clustar train` that say in which type it computes and sends.
#pragma once

#include <string>

#include "bench/trainer/config.h"

namespace CLI {
class App;
}  // namespace CLI

namespace clustar::bench::cli {

// --precision, --loss-scale, --loss-scale-interval.
void add_precision_options(CLI::App& command, trainer::TrainConfig& config);
// Fills in the loss scale that is usual, where none was given. Returns what does not fit together, for people; empty:
// all is well.
std::string take_precision(const CLI::App& command, trainer::TrainConfig& config);

}  // namespace clustar::bench::cli
