#include "bench/trainer/parallel/make_optimizer.h"

#include "bench/trainer/parallel/device_optimizer.h"
#include "bench/trainer/parallel/sharded_optimizer.h"

namespace clustar::bench::trainer::parallel {

std::unique_ptr<Optimizer> make_optimizer(const TrainConfig& config, GradientReducer& reducer, OnDevice* device,
                                          std::span<float> parameters, std::span<float> gradients, LossScaler& scaler,
                                          proxy::Bootstrap* bootstrap) {
  const SgdOptions sgd{static_cast<float>(config.rate), static_cast<float>(config.momentum),
                       static_cast<float>(config.weight_decay)};
  if (device != nullptr) return std::make_unique<DeviceOptimizer>(reducer, *device, parameters, sgd);
  if (bootstrap == nullptr) return std::make_unique<WholeOptimizer>(reducer, parameters, gradients, sgd, scaler);
  return std::make_unique<ShardedOptimizer>(reducer, parameters, gradients, sgd, scaler, *bootstrap,
                                            config.overlap_forward);
}

}  // namespace clustar::bench::trainer::parallel
