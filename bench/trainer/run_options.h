// What ranks of a run, and a run and its continuation, need to have in common: one list for both.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/trainer/compute/layer_times.h"
#include "bench/trainer/config.h"
#include "bench/trainer/data/dataset.h"

namespace clustar::bench::trainer {

// kRanks: or they would wait for each other, or train different things. kBits: what a run's bits after each epoch hang
// on; how many epochs, and what changes no bit (checks, prefetch, overlap), is none of that.
enum class Shared : std::uint8_t { kRanks, kBits, kBoth };

struct RunOption {
  std::string name;   // of the option, or what it is
  std::string value;  // for people; another one for each value
  Shared shared = Shared::kBoth;
};

// `times`: of a replay.
std::vector<RunOption> run_options(const TrainConfig& config, int ranks, int channels, const Dataset& dataset,
                                   const std::optional<LayerTimes>& times);

}  // namespace clustar::bench::trainer
