// The options of `clustar train` that say what is trained.
#pragma once

#include <string>

#include "bench/trainer/config.h"

namespace CLI {
class App;
}

namespace clustar::bench::cli {

// --model, --image-size, --classes, --width-divisor.
void add_model_options(CLI::App& command, trainer::TrainConfig& config);
// What does not fit together of them, as a message for people. Empty: all is well.
std::string model_contradiction(const trainer::TrainConfig& config);

}  // namespace clustar::bench::cli
