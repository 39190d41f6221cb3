// One gradient bucket on its way through a codec: the buffers of its blobs, and what decodes into what.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "bench/trainer/codec.h"
#include "transport/base/result.h"

namespace clustar::bench::trainer {

class EncodedBucket {
 public:
  // `gradients` are the bucket's, codec->elements() of them, in place; they must outlive it. `ranks`: how many blobs
  // decode_all() sums.
  EncodedBucket(std::unique_ptr<GradientCodec> codec, std::span<float> gradients, int ranks);

  // gradients + residual -> own blob. An error names the element; the blob then tells the other ranks.
  Result<void> encode();
  // own blob -> gradients; NaN when encode() failed, so that a sum tells the other ranks.
  void decode_own();
  // All blobs, summed in rank order -> gradients: the same bits on every rank. An error names the rank it came from.
  Result<void> decode_all();
  // For sums of what decode_own() made: an error unless all gradients are finite.
  Result<void> check_sum() const;

  // For the all-gather: the own blob, and room for those of all ranks, one after the other.
  std::span<std::byte> own() { return own_; }
  std::span<std::byte> all() { return all_; }
  // What the codec left out so far, as the gradients lie.
  std::span<float> residual() { return feedback_.residual(); }

 private:
  std::unique_ptr<GradientCodec> codec_;
  std::span<float> gradients_;
  ErrorFeedback feedback_;
  std::vector<std::byte> own_;
  std::vector<std::byte> all_;
};

}  // namespace clustar::bench::trainer
