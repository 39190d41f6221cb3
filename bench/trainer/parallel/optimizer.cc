#include "bench/trainer/parallel/optimizer.h"

#include "bench/trainer/parallel/bucket_order.h"

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

Result<void> WholeOptimizer::set_plan(const BucketPlan& next) {
  relocate(sgd_.momentum(), reducer_.plan(), next);
  return {};
}

}  // namespace clustar::bench::trainer::parallel
