#include "bench/trainer/reducer.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "bench/trainer/parallel/bucket_order.h"

namespace clustar::bench::trainer {
namespace {

double seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

double squares(std::span<const float> values) {
  double sum = 0;
  for (const float value : values) sum += double{value} * double{value};
  return sum;
}

// In the order in which they lie in the bucket.
std::vector<Matrix> matrices_of(const Bucket& bucket, const std::vector<graph::TensorSpec>& tensors) {
  std::vector<Matrix> matrices;
  for (const std::size_t tensor : bucket.tensors) {
    const auto& [name, elements, columns] = tensors[tensor];
    matrices.push_back({elements / columns, columns});
  }
  return matrices;
}

}  // namespace

GradientReducer::GradientReducer(const BucketPlan& plan, std::span<float> gradients, Collective* collective,
                                 const CodecOptions& codec, const std::vector<graph::TensorSpec>& tensors,
                                 FrontRoute front, Reduction reduction, OnDevice* device)
    : plan_(plan),
      gradients_(gradients),
      route_{collective, {}},
      front_{front.collective, {}},
      front_buckets_(front.collective != nullptr ? front.buckets : 0),
      options_(codec),
      tensors_(tensors),
      reduction_(reduction),
      device_(device) {
  if (packs() && collective != nullptr) packed_.resize(gradients.size());
  for (Route* route : {&route_, &front_}) {
    if (route->collective == nullptr) continue;
    if (device_ != nullptr) {
      route->mapped = device_->gradients();
      route->collective->adopt(route->mapped, plan_.capacity() * sizeof(float));
      continue;
    }
    const auto travels = packs() ? std::as_writable_bytes(std::span(packed_)) : std::as_writable_bytes(gradients);
    route->mapped = route->collective->map(travels.data(), travels.size());
    if (route->collective->tells_lost()) lost_.resize(gradients.size());
  }
  prepare_buckets();
}

void GradientReducer::prepare_buckets() {
  front_from_ = plan_.buckets.size() - front_buckets_;
  bucket_of_.resize(plan_.tensor_offset.size());
  settled_.assign(plan_.buckets.size(), false);
  missing_.clear();
  for (std::size_t b = 0; b < plan_.buckets.size(); ++b) {
    const Bucket& bucket = plan_.buckets[b];
    missing_.push_back(bucket.tensors.size());
    for (const std::size_t tensor : bucket.tensors) bucket_of_[tensor] = b;
    if (!encodes()) continue;
    Collective* const gatherer = gathers() ? route_of(b).collective : nullptr;
    encoded_.emplace_back(make_codec(options_, matrices_of(bucket, tensors_)),
                          gradients_.subspan(bucket.offset, bucket.elements),
                          gatherer != nullptr ? gatherer->size() : 0);
    if (gatherer != nullptr) blobs_.push_back(map_blobs(encoded_.back(), *gatherer));
  }
}

std::vector<float> GradientReducer::residuals() {
  std::vector<float> flat(gradients_.size());
  for (std::size_t b = 0; b < encoded_.size(); ++b) {
    const std::span<float> residual = encoded_[b].residual();
    std::copy(residual.begin(), residual.end(), flat.begin() + static_cast<std::ptrdiff_t>(plan_.buckets[b].offset));
  }
  return flat;
}

void GradientReducer::set_plan(const BucketPlan& plan) {
  if (keeps_lost()) parallel::relocate(lost_, plan_, plan);
  std::vector<float> left_out = encodes() ? residuals() : std::vector<float>();
  if (encodes()) parallel::relocate(left_out, plan_, plan);
  std::move(encoded_.begin(), encoded_.end(), std::back_inserter(retired_));
  encoded_.clear();
  blobs_.clear();
  plan_ = plan;
  prepare_buckets();
  for (std::size_t b = 0; b < encoded_.size(); ++b) {
    const auto part = std::span(left_out).subspan(plan_.buckets[b].offset, plan_.buckets[b].elements);
    std::copy(part.begin(), part.end(), encoded_[b].residual().begin());
  }
}

// A vector keeps its elements where they are when the bucket that holds it moves.
GradientReducer::MappedBlobs GradientReducer::map_blobs(EncodedBucket& encoded, Collective& collective) {
  const std::span<std::byte> own = encoded.own();
  const std::span<std::byte> all = encoded.all();
  return {collective.map(own.data(), own.size()), collective.map(all.data(), all.size())};
}

void GradientReducer::tensor_ready(std::size_t tensor) {
  --missing_[bucket_of_[tensor]];
  if (route_.collective == nullptr && !encodes()) return;
  while (in_flight_.size() < plan_.buckets.size() && missing_[in_flight_.size()] == 0) {
    const std::size_t bucket = in_flight_.size();
    if (keeps_lost()) add_lost(bucket);
    if (encodes()) encode(bucket);
    const Clock::time_point now = Clock::now();
    in_flight_.push_back({route_.collective != nullptr ? start(bucket) : nullptr, now, std::nullopt});
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
  if (route_.collective == nullptr || !gathers()) encoded_[bucket].decode_own();
  step_.codec_s += seconds(Clock::now() - start);
}

std::unique_ptr<Pending> GradientReducer::start(std::size_t bucket) {
  const auto& [collective, mapped] = route_of(bucket);
  if (gathers())
    return collective->all_gather(blobs_[bucket].own, blobs_[bucket].all, encoded_[bucket].own().size(), {});
  const Bucket& part = plan_.buckets[bucket];
  if (device_ != nullptr) {
    return collective->all_reduce(mapped.at(part.offset * sizeof(float)), part.elements, Precision::kFloat32,
                                  device_->ready(), nullptr);
  }
  const std::size_t elements = travelling(part);
  const auto padding = gradients_.subspan(part.offset, elements).subspan(part.elements);
  std::fill(padding.begin(), padding.end(), 0.0f);
  if (packs()) {
    pack(precision(), gradients_.subspan(part.offset, elements), std::span(packed_).subspan(part.offset, elements));
  }
  const Buffer first = mapped.at(part.offset * element_bytes(precision()));
  if (reduction_ == Reduction::kShard) {
    return collective->reduce_scatter(first, plan_.shard_elements(part), precision(), {});
  }
  float* const lost = keeps_lost() ? lost_.data() + part.offset : nullptr;
  if (keeps_lost()) step_.given_squares += squares(gradients_.subspan(part.offset, part.elements));
  return collective->all_reduce(first, part.elements, precision(), {}, lost);
}

bool GradientReducer::settle(std::size_t bucket) {
  if (settled_[bucket]) return false;
  settled_[bucket] = true;
  if (route_.collective == nullptr) return true;
  const Clock::time_point start = Clock::now();
  wait(bucket);
  step_.exposed_s += seconds(Clock::now() - start);
  return true;
}

Result<StepCommunication> GradientReducer::finish() {
  for (std::size_t b = 0; b < missing_.size(); ++b) missing_[b] = plan_.buckets[b].tensors.size();
  for (std::size_t b = 0; b < settled_.size(); ++b) settle(b);
  for (const InFlight& one : in_flight_) {
    if (one.ended) step_.buckets.emplace_back(one.started, *one.ended);
  }
  step_.total_s = time_under_way(step_.buckets);
  in_flight_.clear();
  settled_.assign(settled_.size(), false);
  const StepCommunication step = std::exchange(step_, {});
  if (error_) return tl::unexpected(*std::exchange(error_, std::nullopt));
  return step;
}

void GradientReducer::wait(std::size_t bucket) {
  // After a failure the other buckets are aborted, and waited for too: until then they may write to the gradients.
  const auto outcome = in_flight_[bucket].pending->wait();
  if (!outcome) {
    const char* const shard = reduction_ == Reduction::kShard ? "reduce-scatter" : "all-reduce";
    keep_error(bucket, gathers() ? "all-gather" : shard, outcome.error());
    for (const Route& route : {route_, front_}) {
      if (route.collective != nullptr) route.collective->abort();
    }
    return;
  }
  const Bucket& part = plan_.buckets[bucket];
  if (packs()) {
    const std::size_t elements = travelling(part);
    unpack(precision(), std::span(packed_).subspan(part.offset, elements), gradients_.subspan(part.offset, elements));
  }
  step_.missing_contributions += outcome->missing_contributions;
  step_.expected_contributions += outcome->expected_contributions;
  if (keeps_lost()) {
    step_.lost_squares += squares(std::span(lost_).subspan(part.offset, part.elements));
  }
  const auto length = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(outcome->seconds));
  in_flight_[bucket].ended = in_flight_[bucket].started + length;
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
  error_ = Error{error.code, fmt::format("{} of gradient bucket {} of {} ({} bytes) failed: {}", what, bucket + 1,
                                         plan_.buckets.size(), plan_.bytes(plan_.buckets[bucket]), error.message)};
}

}  // namespace clustar::bench::trainer
