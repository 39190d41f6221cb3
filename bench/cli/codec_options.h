// By which codec clustar train sends its gradients.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "bench/trainer/config.h"

namespace clustar::bench::cli {

void add_codec_options(CLI::App& command, trainer::CodecOptions& codec);

// What of them contradicts the rest. Empty: all is well.
std::string codec_contradiction(const CLI::App& command, const trainer::TrainConfig& config);

}  // namespace clustar::bench::cli
