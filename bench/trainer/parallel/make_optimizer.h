// The optimiser that a run needs.
#pragma once

#include <memory>
#include <span>

#include "bench/proxy/bootstrap.h"
#include "bench/trainer/compute/on_device.h"
#include "bench/trainer/config.h"
#include "bench/trainer/parallel/optimizer.h"
#include "bench/trainer/precision/loss_scaler.h"
#include "bench/trainer/reducer.h"

namespace clustar::bench::trainer::parallel {

// All but `config` outlive it. `device`: null: parameters and gradients are host memory. `bootstrap`: null: buckets are
// no shards.
std::unique_ptr<Optimizer> make_optimizer(const TrainConfig& config, GradientReducer& reducer, OnDevice* device,
                                          std::span<float> parameters, std::span<float> gradients, LossScaler& scaler,
                                          proxy::Bootstrap* bootstrap);

}  // namespace clustar::bench::trainer::parallel
