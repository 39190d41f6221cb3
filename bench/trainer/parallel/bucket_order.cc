#include "bench/trainer/parallel/bucket_order.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

namespace clustar::bench::trainer::parallel {
namespace {

Result<std::vector<std::size_t>> order_of_rank_zero(std::span<const std::size_t> order, proxy::Bootstrap& bootstrap) {
  const std::vector<std::uint64_t> mine(order.begin(), order.end());
  const auto all = bootstrap.all_gather(std::as_bytes(std::span(mine)));
  if (!all) return tl::unexpected(all.error());
  std::vector<std::uint64_t> first(mine.size());
  if (!first.empty()) std::memcpy(first.data(), all->data(), first.size() * sizeof first[0]);
  return std::vector<std::size_t>(first.begin(), first.end());
}

bool is_permutation_of(std::size_t count, std::span<const std::size_t> order) {
  std::vector<bool> seen(count);
  for (const std::size_t tensor : order) {
    if (tensor >= count || seen[tensor]) return false;
    seen[tensor] = true;
  }
  return order.size() == count;
}

bool is_same(const BucketPlan& a, const BucketPlan& b) {
  return std::equal(a.buckets.begin(), a.buckets.end(), b.buckets.begin(), b.buckets.end(),
                    [](const Bucket& one, const Bucket& other) { return one.tensors == other.tensors; });
}

}  // namespace

Result<std::optional<BucketPlan>> rebuilt_buckets(const BucketPlan& plan, std::span<const std::size_t> order,
                                                  proxy::Bootstrap* bootstrap) {
  std::vector<std::size_t> agreed(order.begin(), order.end());
  if (bootstrap != nullptr) {
    auto first = order_of_rank_zero(order, *bootstrap);
    if (!first) return tl::unexpected(first.error());
    agreed = std::move(*first);
  }
  if (!is_permutation_of(plan.tensor_elements.size(), agreed)) {
    return fail(ErrorCode::kInternal, "the first step's gradients did not come once for each tensor");
  }
  BucketPlan next = plan_buckets(plan.tensor_elements, agreed, plan.caps);
  if (is_same(plan, next)) return std::optional<BucketPlan>();
  return std::optional<BucketPlan>(std::move(next));
}

void relocate(std::span<float> flat, const BucketPlan& from, const BucketPlan& to) {
  const std::vector<float> before(flat.begin(), flat.end());
  std::fill(flat.begin(), flat.end(), 0.0f);
  for (std::size_t tensor = 0; tensor < from.tensor_offset.size(); ++tensor) {
    const std::size_t bytes = from.tensor_elements[tensor] * sizeof(float);
    std::memcpy(flat.data() + to.tensor_offset[tensor], before.data() + from.tensor_offset[tensor], bytes);
  }
}

std::vector<float> in_parameter_order(std::span<const float> flat, const BucketPlan& plan) {
  std::vector<float> ordered;
  ordered.reserve(plan.parameters());
  for (std::size_t tensor = 0; tensor < plan.tensor_offset.size(); ++tensor) {
    const auto part = flat.subspan(plan.tensor_offset[tensor], plan.tensor_elements[tensor]);
    ordered.insert(ordered.end(), part.begin(), part.end());
  }
  return ordered;
}

}  // namespace clustar::bench::trainer::parallel
