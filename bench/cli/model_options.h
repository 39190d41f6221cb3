// The options of `clustar train` and `ab` that say what is trained.
#pragma once

#include <string>

#include "bench/trainer/config.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace clustar::bench::cli {

// --model, which is returned, --image-size, --classes, --width-divisor.
CLI::Option* add_model_options(CLI::App& command, trainer::TrainConfig& config, const std::string& group = "Options");
// What does not fit together of them and --data, as a message for people. Empty: all is well.
std::string model_contradiction(const trainer::TrainConfig& config);

}  // namespace clustar::bench::cli
