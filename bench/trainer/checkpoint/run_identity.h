// What a run's bits depend on.
#pragma once

#include "bench/trainer/checkpoint/file.h"
#include "bench/trainer/config.h"
#include "bench/trainer/data/dataset.h"

namespace clustar::bench::trainer {

// By names and values for people. Runs that agree in it, and go by collectives whose sums do not depend on time, have
// the same bits after each epoch; how many epochs, and what does not change a bit (checks, prefetch, overlap), is not
// in it.
Facts run_identity(const TrainConfig& config, int ranks, int channels, const Dataset& dataset);

}  // namespace clustar::bench::trainer
