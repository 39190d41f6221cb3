// Whether a rank's parameters, gradients and momentum stay on the GPU that computes with them.
#pragma once

#include <string>

#include "bench/trainer/config.h"

namespace clustar::bench::trainer {

// What of the run needs them in host memory, for people; empty: nothing.
std::string needs_host_memory(const TrainConfig& config, int ranks);

bool stays_on_device(const TrainConfig& config, int ranks);

}  // namespace clustar::bench::trainer
