#include "bench/trainer/parallel/device_optimizer.h"

namespace clustar::bench::trainer::parallel {

DeviceOptimizer::DeviceOptimizer(GradientReducer& reducer, OnDevice& device, std::span<float> parameters,
                                 const SgdOptions& options)
    : reducer_(reducer), device_(device), parameters_(parameters), options_(options) {
  device_.take(parameters);
}

// What the sum failed with, finish() reports; the run ends with it, whatever was made of its rest.
void DeviceOptimizer::bring(std::size_t bucket) {
  if (!reducer_.settle(bucket)) return;
  const Bucket& part = reducer_.plan().buckets[bucket];
  device_.update(options_, part.offset, part.elements);
}

Result<StepCommunication> DeviceOptimizer::finish() {
  for (std::size_t bucket = 0; bucket < reducer_.plan().buckets.size(); ++bucket) bring(bucket);
  return reducer_.finish();
}

Result<std::vector<float>> DeviceOptimizer::momentum() {
  fetch();
  std::vector<float> all(parameters_.size());
  device_.copy_momentum(all);
  return all;
}

}  // namespace clustar::bench::trainer::parallel
