#include "bench/trainer/reducer.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace clustar::bench::trainer {
namespace {

double seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

// In the order in which they lie in the bucket.
std::vector<Matrix> matrices_of(const Bucket& bucket, const std::vector<TensorSpec>& tensors) {
  std::vector<Matrix> matrices;
  for (const std::size_t tensor : bucket.tensors) {
    const auto& [name, elements, columns] = tensors[tensor];
    matrices.push_back({elements / columns, columns});
  }
  return matrices;
}

}  // namespace

GradientReducer::GradientReducer(const BucketPlan& plan, std::span<float> gradients, Collective* collective,
                                 const CodecOptions& codec, const std::vector<TensorSpec>& tensors)
    : plan_(plan),
      gradients_(gradients),
      collective_(collective),
      options_(codec),
      bucket_of_(plan.tensor_offset.size()) {
  if (collective != nullptr) mapped_ = collective->map(gradients.data(), gradients.size_bytes());
  if (collective != nullptr && collective->tells_lost()) lost_.resize(plan.elements);
  const int ranks = collective != nullptr && gathers() ? collective->size() : 0;
  for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
    const Bucket& bucket = plan.buckets[b];
    missing_.push_back(bucket.tensors.size());
    for (const std::size_t tensor : bucket.tensors) bucket_of_[tensor] = b;
    if (!encodes()) continue;
    encoded_.emplace_back(make_codec(codec, matrices_of(bucket, tensors)),
                          gradients.subspan(bucket.offset, bucket.elements), ranks);
    if (ranks > 0) blobs_.push_back(map_blobs(encoded_.back()));
  }
}

// A vector keeps its elements where they are when the bucket that holds it moves.
GradientReducer::MappedBlobs GradientReducer::map_blobs(EncodedBucket& encoded) {
  const std::span<std::byte> own = encoded.own();
  const std::span<std::byte> all = encoded.all();
  return {collective_->map(own.data(), own.size()), collective_->map(all.data(), all.size())};
}

void GradientReducer::tensor_ready(std::size_t tensor) {
  --missing_[bucket_of_[tensor]];
  if (collective_ == nullptr && !encodes()) return;
  while (in_flight_.size() < plan_.buckets.size() && missing_[in_flight_.size()] == 0) {
    const std::size_t bucket = in_flight_.size();
    if (keeps_lost()) add_lost(bucket);
    if (encodes()) encode(bucket);
    const Clock::time_point now = Clock::now();
    in_flight_.push_back({collective_ != nullptr ? start(bucket) : nullptr, now});
  }
}

// Before a codec: what it leaves out of this, too, its own error feedback keeps.
void GradientReducer::add_lost(std::size_t bucket) {
  const std::size_t begin = plan_.buckets[bucket].offset;
  const std::size_t end = begin + plan_.buckets[bucket].elements;
  for (std::size_t i = begin; i < end; ++i) gradients_[i] += lost_[i];
}

void GradientReducer::encode(std::size_t bucket) {
  const Clock::time_point start = Clock::now();
  if (const auto ok = encoded_[bucket].encode(); !ok) keep_error(bucket, to_string(options_.codec), ok.error());
  if (collective_ == nullptr || !gathers()) encoded_[bucket].decode_own();
  step_.codec_s += seconds(Clock::now() - start);
}

std::unique_ptr<Pending> GradientReducer::start(std::size_t bucket) {
  if (gathers())
    return collective_->all_gather(blobs_[bucket].own, blobs_[bucket].all, encoded_[bucket].own().size(), {});
  const Bucket& part = plan_.buckets[bucket];
  float* const lost = keeps_lost() ? lost_.data() + part.offset : nullptr;
  return collective_->all_reduce(mapped_.at(part.offset * sizeof(float)), part.elements, {}, lost);
}

Result<StepCommunication> GradientReducer::finish() {
  for (std::size_t b = 0; b < missing_.size(); ++b) missing_[b] = plan_.buckets[b].tensors.size();
  if (collective_ != nullptr) {
    const Clock::time_point backward_over = Clock::now();
    // Buckets overlap in time (a later one queues behind an earlier one), so their times are united, not added.
    Clock::time_point covered_to = in_flight_.empty() ? backward_over : in_flight_.front().started;
    for (std::size_t b = 0; b < in_flight_.size(); ++b) wait(b, covered_to);
    step_.exposed_s = seconds(Clock::now() - backward_over);
  }
  in_flight_.clear();
  const StepCommunication step = std::exchange(step_, {});
  if (error_) return tl::unexpected(*std::exchange(error_, std::nullopt));
  return step;
}

void GradientReducer::wait(std::size_t bucket, Clock::time_point& covered_to) {
  // After a failure the later buckets are aborted, and waited for too: until then they may write to the gradients.
  const auto outcome = in_flight_[bucket].pending->wait();
  if (!outcome) {
    keep_error(bucket, gathers() ? "all-gather" : "all-reduce", outcome.error());
    collective_->abort();
    return;
  }
  step_.missing_contributions += outcome->missing_contributions;
  step_.expected_contributions += outcome->expected_contributions;
  const auto length = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(outcome->seconds));
  const Clock::time_point end = in_flight_[bucket].started + length;
  const Clock::time_point from = std::max(covered_to, in_flight_[bucket].started);
  if (end > from) step_.total_s += seconds(end - from);
  covered_to = std::max(covered_to, end);
  if (encodes()) decode(bucket);
}

void GradientReducer::decode(std::size_t bucket) {
  const Clock::time_point start = Clock::now();
  EncodedBucket& encoded = encoded_[bucket];
  const auto ok = gathers() ? encoded.decode_all() : encoded.check_sum();
  if (!ok) keep_error(bucket, to_string(options_.codec), ok.error());
  step_.codec_s += seconds(Clock::now() - start);
}

void GradientReducer::keep_error(std::size_t bucket, const std::string& what, const Error& error) {
  if (error_) return;
  error_ = Error{error.code,
                 fmt::format("{} of gradient bucket {} of {} ({} bytes) failed: {}", what, bucket + 1,
                             plan_.buckets.size(), plan_.buckets[bucket].elements * sizeof(float), error.message)};
}

}  // namespace clustar::bench::trainer
