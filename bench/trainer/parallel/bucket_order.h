// Buckets in the order in which gradients really come, as DDP plans them again after its first step (PyTorch,
// Reducer::rebuild_buckets).
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "bench/proxy/bootstrap.h"
#include "bench/trainer/buckets.h"
#include "transport/base/result.h"

namespace clustar::bench::trainer::parallel {

// The plan by `order`, in which the gradients of a step came on this rank: all tensors, each once. All ranks call it
// and go by rank 0's order, since theirs may differ. Nothing: the plan is the same already. `bootstrap` null: there is
// one rank.
Result<std::optional<BucketPlan>> rebuilt_buckets(const BucketPlan& plan, std::span<const std::size_t> order,
                                                  proxy::Bootstrap* bootstrap);

// Moves the tensors of a flat array from one plan's places to another's, bit by bit; what lies between them becomes 0.
// `flat` has the capacity() of both.
void relocate(std::span<float> flat, const BucketPlan& from, const BucketPlan& to);

// Each tensor's elements in parameter order, wherever the plan has them.
std::vector<float> in_parameter_order(std::span<const float> flat, const BucketPlan& plan);

}  // namespace clustar::bench::trainer::parallel
