// The options of `clustar train` that say how it learns.
#pragma once

#include "bench/trainer/config.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace clustar::bench::cli {

// --epochs, --batch, --lr, --momentum, --weight-decay, --seed.
void add_sgd_options(CLI::App& command, trainer::TrainConfig& config);
// --target-accuracy, which is returned.
CLI::Option* add_target_option(CLI::App& command, double& accuracy);

}  // namespace clustar::bench::cli
