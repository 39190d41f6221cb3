// Whether `clustar train` computes or replays, and how it records what a replay is made from.
#pragma once

#include <string>

#include "bench/trainer/config.h"

namespace CLI {
class App;
}

namespace clustar::bench::cli {

struct ComputeTexts {
  std::string compute = "cpu";
  double time_scale = 1;
  double byte_scale = 1;
  std::string record;
  std::string device = "cpu";
  std::string cuda_driver;
  trainer::UpdatePlace update = trainer::UpdatePlace::kAuto;
  trainer::graph::cuda::MathOptions math;
};

// --compute, --time-scale, --byte-scale; of clustar train --record-compute, too.
void add_replay_options(CLI::App& command, ComputeTexts& texts);
void add_record_option(CLI::App& command, ComputeTexts& texts);
void add_device_options(CLI::App& command, ComputeTexts& texts);  // and what is of cuda

// Into config.compute and config.record_compute. Returns what is wrong, for people; empty: all is well.
std::string take_compute(const ComputeTexts& texts, trainer::TrainConfig& config, int ranks);

// What the whole run, of so many ranks, says against --update; empty: nothing.
std::string update_contradiction(const trainer::TrainConfig& config, int ranks);

}  // namespace clustar::bench::cli
