// Which gradients travel together: PyTorch DDP's rule, so that message sizes are those of real jobs.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "bench/trainer/precision/precision.h"

namespace clustar::bench::trainer {

inline constexpr std::size_t kDefaultFirstBucketBytes = 1u << 20;  // DDP's first bucket, 1 MiB
inline constexpr std::size_t kDefaultBucketBytes = 25u << 20;      // DDP's bucket_cap_mb = 25

struct Bucket {
  std::size_t offset = 0;            // in elements, in the flat array
  std::size_t elements = 0;          // of its tensors
  std::vector<std::size_t> tensors;  // indices in parameter order, in the order of their gradients
};

struct BucketCaps {
  std::size_t first_bytes = kDefaultFirstBucketBytes;  // of the first bucket only
  std::size_t bytes = kDefaultBucketBytes;
  // Above 1: each bucket has room for so many equal shards of whole 16 bytes, one for each rank.
  std::size_t shards = 1;
  Precision precision = Precision::kFloat32;  // in which gradients travel: bytes above are of that
};

// Also the layout of parameters, gradients and momentum: one flat array in the order of gradients, so that each bucket
// is a contiguous range that is reduced in place.
struct BucketPlan {
  std::vector<Bucket> buckets;             // in the order in which they become ready
  std::vector<std::size_t> tensor_offset;  // per tensor in parameter order: where it starts in the flat array
  std::vector<std::size_t> tensor_elements;
  BucketCaps caps;           // by which it is planned again
  std::size_t elements = 0;  // of the flat array

  std::size_t bytes(const Bucket& bucket) const { return bucket.elements * element_bytes(caps.precision); }
  std::size_t shard_elements(const Bucket& bucket) const;
  std::size_t room(const Bucket& bucket) const { return shard_elements(bucket) * caps.shards; }
  std::size_t parameters() const;  // elements of all tensors
  // Of flat arrays that take this plan and any other of these tensors and caps.
  std::size_t capacity() const;
};

// Tensors are taken from the last parameter to the first; a bucket is closed once it holds at least its cap (so a cap
// is exceeded by less than the tensor that crosses it).
BucketPlan plan_buckets(std::span<const std::size_t> tensor_elements, const BucketCaps& caps);
BucketPlan plan_buckets(std::span<const std::size_t> tensor_elements,
                        std::size_t first_bytes = kDefaultFirstBucketBytes, std::size_t bytes = kDefaultBucketBytes);
// The same for tensors in the order of `order`, a permutation of theirs.
BucketPlan plan_buckets(std::span<const std::size_t> tensor_elements, std::span<const std::size_t> order,
                        const BucketCaps& caps);
// All in one bucket, as DDP's first step has them without find_unused_parameters; `caps` are for later.
BucketPlan plan_one_bucket(std::span<const std::size_t> tensor_elements, const BucketCaps& caps);

}  // namespace clustar::bench::trainer
