#include "bench/trainer/parallel/optimizer.h"

namespace clustar::bench::trainer::parallel {

const char* to_string(Sharding sharding) {
  switch (sharding) {
    case Sharding::kNone: return "none";
    case Sharding::kZero1: return "zero1";
  }
  return "?";
}

void WholeOptimizer::bring(std::size_t bucket) {
  const Bucket& part = reducer_.plan().buckets[bucket];
  if (reducer_.settle(bucket)) sgd_.step(parameters_, gradients_, part.offset, part.elements);
}

Result<StepCommunication> WholeOptimizer::finish() {
  for (std::size_t bucket = 0; bucket < reducer_.plan().buckets.size(); ++bucket) bring(bucket);
  return reducer_.finish();
}

Result<std::vector<float>> WholeOptimizer::momentum() {
  const std::span<const float> all = sgd_.momentum();
  return std::vector<float>(all.begin(), all.end());
}

}  // namespace clustar::bench::trainer::parallel
