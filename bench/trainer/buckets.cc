#include "bench/trainer/buckets.h"

#include <cstdint>
#include <numeric>
#include <utility>

namespace clustar::bench::trainer {
namespace {

// In elements. The proxy's ring cuts an all-reduce at the same places, so that a shard's sums have the bits of an
// all-reduce.
std::size_t shard_alignment(const BucketCaps& caps) { return 16 / element_bytes(caps.precision); }

std::vector<std::size_t> from_the_last(std::size_t tensors) {
  std::vector<std::size_t> order(tensors);
  std::iota(order.rbegin(), order.rend(), std::size_t{0});
  return order;
}

}  // namespace

std::size_t BucketPlan::shard_elements(const Bucket& bucket) const {
  if (caps.shards == 1) return bucket.elements;
  const std::size_t share = (bucket.elements + caps.shards - 1) / caps.shards;
  const std::size_t alignment = shard_alignment(caps);
  return (share + alignment - 1) / alignment * alignment;
}

std::size_t BucketPlan::parameters() const {
  return std::accumulate(tensor_elements.begin(), tensor_elements.end(), std::size_t{0});
}

// Each tensor could have a bucket of its own.
std::size_t BucketPlan::capacity() const {
  if (caps.shards == 1) return elements;
  return parameters() + tensor_elements.size() * caps.shards * shard_alignment(caps);
}

BucketPlan plan_buckets(std::span<const std::size_t> tensor_elements, std::span<const std::size_t> order,
                        const BucketCaps& caps) {
  BucketPlan plan;
  plan.caps = caps;
  plan.tensor_elements.assign(tensor_elements.begin(), tensor_elements.end());
  plan.tensor_offset.resize(tensor_elements.size());
  Bucket open;
  const auto close = [&] {
    plan.elements = open.offset + plan.room(open);
    plan.buckets.push_back(std::exchange(open, Bucket{.offset = plan.elements, .elements = 0, .tensors = {}}));
  };
  for (const std::size_t tensor : order) {
    plan.tensor_offset[tensor] = open.offset + open.elements;
    open.elements += tensor_elements[tensor];
    open.tensors.push_back(tensor);
    const std::size_t cap = plan.buckets.empty() ? caps.first_bytes : caps.bytes;
    if (plan.bytes(open) >= cap) close();
  }
  if (!open.tensors.empty()) close();
  return plan;
}

BucketPlan plan_buckets(std::span<const std::size_t> tensor_elements, const BucketCaps& caps) {
  return plan_buckets(tensor_elements, from_the_last(tensor_elements.size()), caps);
}

BucketPlan plan_buckets(std::span<const std::size_t> tensor_elements, std::size_t first_bytes, std::size_t bytes) {
  return plan_buckets(tensor_elements, {.first_bytes = first_bytes, .bytes = bytes});
}

BucketPlan plan_one_bucket(std::span<const std::size_t> tensor_elements, const BucketCaps& caps) {
  BucketCaps unlimited = caps;
  unlimited.first_bytes = unlimited.bytes = SIZE_MAX;
  BucketPlan plan = plan_buckets(tensor_elements, unlimited);
  plan.caps = caps;
  return plan;
}

}  // namespace clustar::bench::trainer
