#include "bench/trainer/encoded_bucket.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace clustar::bench::trainer {

EncodedBucket::EncodedBucket(std::unique_ptr<GradientCodec> codec, std::span<float> gradients, int ranks)
    : codec_(std::move(codec)),
      gradients_(gradients),
      feedback_(*codec_),
      own_(codec_->encoded_bytes()),
      all_(own_.size() * static_cast<std::size_t>(ranks)) {}

Result<void> EncodedBucket::encode() { return feedback_.encode(gradients_, own_); }

void EncodedBucket::decode_own() {
  std::fill(gradients_.begin(), gradients_.end(), 0.0f);
  if (codec_->add_decoded(own_, gradients_)) return;
  std::fill(gradients_.begin(), gradients_.end(), std::numeric_limits<float>::quiet_NaN());
}

Result<void> EncodedBucket::decode_all() {
  std::fill(gradients_.begin(), gradients_.end(), 0.0f);
  if (own_.empty()) return {};
  for (std::size_t at = 0; at < all_.size(); at += own_.size()) {
    const auto ok = codec_->add_decoded(std::span(all_).subspan(at, own_.size()), gradients_);
    if (ok) continue;
    return fail(ok.error().code, fmt::format("from rank {}: {}", at / own_.size(), ok.error().message));
  }
  return {};
}

Result<void> EncodedBucket::check_sum() const {
  if (std::all_of(gradients_.begin(), gradients_.end(), [](float g) { return std::isfinite(g); })) return {};
  return fail(ErrorCode::kInvalidArgument,
              "the sum over the ranks is not finite: the training diverged; try a smaller "
              "rate");
}

}  // namespace clustar::bench::trainer
