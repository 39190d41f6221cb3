#include "bench/trainer/checkpoint/run_identity.h"

#include "bench/trainer/run_options.h"

namespace clustar::bench::trainer {

Facts run_identity(const TrainConfig& config, int ranks, int channels, const Dataset& dataset) {
  Facts facts;
  for (const RunOption& option : run_options(config, ranks, channels, dataset, {})) {
    if (option.shared != Shared::kRanks) facts.emplace(option.name, option.value);
  }
  return facts;
}

}  // namespace clustar::bench::trainer
