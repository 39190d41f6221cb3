#include "bench/trainer/buckets.h"

#include <utility>

namespace clustar::bench::trainer {

BucketPlan plan_buckets(std::span<const std::size_t> tensor_elements, std::size_t first_bytes, std::size_t bytes) {
  BucketPlan plan;
  plan.tensor_offset.resize(tensor_elements.size());
  Bucket open;
  for (std::size_t i = tensor_elements.size(); i-- > 0;) {
    plan.tensor_offset[i] = plan.elements;
    plan.elements += tensor_elements[i];
    open.elements += tensor_elements[i];
    open.tensors.push_back(i);
    const std::size_t cap = plan.buckets.empty() ? first_bytes : bytes;
    if (open.elements * sizeof(float) >= cap) {
      plan.buckets.push_back(std::exchange(open, Bucket{.offset = plan.elements, .elements = 0, .tensors = {}}));
    }
  }
  if (!open.tensors.empty()) plan.buckets.push_back(std::move(open));
  return plan;
}

}  // namespace clustar::bench::trainer
