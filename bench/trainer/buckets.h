// Which gradients travel together: PyTorch DDP's rule, so that message sizes are those of real jobs.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace clustar::bench::trainer {

inline constexpr std::size_t kDefaultFirstBucketBytes = 1u << 20;  // DDP's first bucket, 1 MiB
inline constexpr std::size_t kDefaultBucketBytes = 25u << 20;      // DDP's bucket_cap_mb = 25

struct Bucket {
  std::size_t offset = 0;  // in elements, in the flat array
  std::size_t elements = 0;
  std::vector<std::size_t> tensors;  // indices in parameter order, in the order of their gradients
};

// Also the layout of parameters, gradients and momentum: one flat array in reverse parameter order, so that each
// bucket is a contiguous range that is reduced in place.
struct BucketPlan {
  std::vector<Bucket> buckets;             // in the order in which they become ready
  std::vector<std::size_t> tensor_offset;  // per tensor in parameter order: where it starts in the flat array
  std::size_t elements = 0;
};

// Tensors are taken from the last parameter to the first; a bucket is closed once it holds at least its cap (so a cap
// is exceeded by less than the tensor that crosses it). The first cap holds for the first bucket only. float32.
BucketPlan plan_buckets(std::span<const std::size_t> tensor_elements,
                        std::size_t first_bytes = kDefaultFirstBucketBytes, std::size_t bytes = kDefaultBucketBytes);

}  // namespace clustar::bench::trainer
