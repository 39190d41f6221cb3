#include "bench/trainer/parallel/optimizer.h"

#include <utility>

#include "bench/trainer/precision/precision.h"

namespace clustar::bench::trainer::parallel {

const char* to_string(Sharding sharding) {
  switch (sharding) {
    case Sharding::kNone: return "none";
    case Sharding::kZero1: return "zero1";
  }
  return "?";
}

void unscale(std::span<float> gradients, float scale) {
  const float factor = 1 / scale;
  for (float& gradient : gradients) gradient *= factor;
}

void WholeOptimizer::bring(std::size_t bucket) {
  if (scaler_.is_on()) return step_scaled();
  if (reducer_.settle(bucket)) update(reducer_.plan().buckets[bucket]);
}

void WholeOptimizer::update(const Bucket& bucket) {
  sgd_.step(parameters_, gradients_, bucket.offset, bucket.elements);
}

// Sums are the same on all ranks, so all of them skip the same steps.
void WholeOptimizer::step_scaled() {
  if (std::exchange(stepped_, true)) return;
  const std::vector<Bucket>& buckets = reducer_.plan().buckets;
  bool finite = true;
  for (std::size_t bucket = 0; bucket < buckets.size(); ++bucket) {
    reducer_.settle(bucket);
    finite = finite && all_finite(gradients_.subspan(buckets[bucket].offset, buckets[bucket].elements));
  }
  const float scale = scaler_.scale();
  scaler_.settle(finite);
  if (!finite) return;
  for (const Bucket& bucket : buckets) {
    unscale(gradients_.subspan(bucket.offset, bucket.elements), scale);
    update(bucket);
  }
}

Result<StepCommunication> WholeOptimizer::finish() {
  for (std::size_t bucket = 0; bucket < reducer_.plan().buckets.size(); ++bucket) bring(bucket);
  stepped_ = false;
  return reducer_.finish();
}

Result<std::vector<float>> WholeOptimizer::momentum() {
  const std::span<const float> all = sgd_.momentum();
  return std::vector<float>(all.begin(), all.end());
}

}  // namespace clustar::bench::trainer::parallel
