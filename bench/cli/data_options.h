// The options of `clustar train` that say what it trains on, and what of the training it keeps.
#pragma once

#include <string>

#include "bench/trainer/config.h"

namespace CLI {
class App;
}  // namespace CLI

namespace clustar::bench::cli {

// --data and --skip-damaged, which clustar ab has, too.
void add_data_source_options(CLI::App& command, trainer::TrainConfig& config, const std::string& group = "Options");
// Those, --examples and --prefetch.
void add_data_options(CLI::App& command, trainer::TrainConfig& config);
// --checkpoint, --checkpoint-every, --resume.
void add_checkpoint_options(CLI::App& command, trainer::TrainConfig& config);
// What does not fit together of all these, or lies on no disk, as a message for people. Empty: all is well.
std::string data_contradiction(const CLI::App& command, const trainer::TrainConfig& config);
std::string checkpoint_contradiction(const CLI::App& command, const trainer::TrainConfig& config);

}  // namespace clustar::bench::cli
