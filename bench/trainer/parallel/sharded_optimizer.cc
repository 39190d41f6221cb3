#include "bench/trainer/parallel/sharded_optimizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "bench/trainer/precision/precision.h"
#include "bench/trainer/timeline.h"

namespace clustar::bench::trainer::parallel {

ShardedOptimizer::ShardedOptimizer(GradientReducer& reducer, std::span<float> parameters, std::span<float> gradients,
                                   const SgdOptions& options, LossScaler& scaler, proxy::Bootstrap& bootstrap,
                                   bool in_forward)
    : reducer_(reducer),
      parameters_(parameters),
      gradients_(gradients),
      scaler_(scaler),
      bootstrap_(bootstrap),
      in_forward_(in_forward),
      sgd_(0, options.rate, options.momentum, options.weight_decay) {
  for (std::size_t bucket = 0; bucket < reducer.plan().buckets.size(); ++bucket) {
    Collective* const one = reducer.collective_of(bucket);
    if (std::find(collectives_.begin(), collectives_.end(), one) != collectives_.end()) continue;
    collectives_.push_back(one);
    mapped_.push_back(one->map(parameters.data(), parameters.size_bytes()));
  }
  if (scaler.is_on()) {
    finite_.resize(static_cast<std::size_t>(bootstrap.size()));
    mapped_finite_ = collectives_.front()->map(finite_.data(), finite_.size() * sizeof finite_[0]);
  }
  set_momentum(std::vector<float>(parameters.size()), reducer.plan());
}

std::size_t ShardedOptimizer::own_begin(const BucketPlan& plan, const Bucket& bucket) const {
  return bucket.offset + static_cast<std::size_t>(bootstrap_.rank()) * plan.shard_elements(bucket);
}

void ShardedOptimizer::bring(std::size_t bucket) {
  if (!std::exchange(updated_, true)) update_all();
  wait(bucket);
}

// With no forward pass to wait, a bucket's all-gather runs while the next one's gradients are waited for. Otherwise the
// bucket that comes last is wanted first, and by then all others are there.
void ShardedOptimizer::update_all() {
  const std::size_t buckets = gathers_.size();
  const bool at_once = !in_forward_ && !scaler_.is_on();
  for (std::size_t bucket = 0; bucket < buckets; ++bucket) {
    reducer_.settle(bucket);
    if (at_once) update(bucket);
  }
  if (at_once) return;
  const float scale = scaler_.scale();
  if (scaler_.is_on()) {
    const bool finite = all_shards_finite();
    scaler_.settle(finite);
    if (!finite) {  // all ranks keep the parameters that they have
      for (Gather& one : gathers_) one = {};
      return;
    }
    for (const Bucket& part : reducer_.plan().buckets) unscale(own_gradients(part), scale);
  }
  for (std::size_t i = 0; i < buckets; ++i) update(in_forward_ ? buckets - 1 - i : i);
}

std::span<float> ShardedOptimizer::own_gradients(const Bucket& bucket) const {
  return gradients_.subspan(own_begin(reducer_.plan(), bucket), reducer_.plan().shard_elements(bucket));
}

// A rank sees the sums of its own shards only. An all-gather never loses.
bool ShardedOptimizer::all_shards_finite() {
  const auto is_finite = [this](const Bucket& bucket) { return all_finite(own_gradients(bucket)); };
  const std::vector<Bucket>& buckets = reducer_.plan().buckets;
  const auto rank = static_cast<std::size_t>(bootstrap_.rank());
  finite_[rank] = std::all_of(buckets.begin(), buckets.end(), is_finite) ? 1 : 0;
  constexpr std::size_t kBytes = sizeof finite_[0];
  const Clock::time_point start = Clock::now();
  const auto outcome =
      collectives_.front()->all_gather(mapped_finite_.at(rank * kBytes), mapped_finite_, kBytes, {})->wait();
  waited_s_ += std::chrono::duration<double>(Clock::now() - start).count();
  if (!outcome) keep_error("all-gather of which shards are finite", outcome.error());
  return outcome && std::find(finite_.begin(), finite_.end(), 0u) == finite_.end();
}

void ShardedOptimizer::update(std::size_t bucket) {
  const Bucket& part = reducer_.plan().buckets[bucket];
  const std::size_t shard = reducer_.plan().shard_elements(part);
  const std::size_t own = own_begin(reducer_.plan(), part);
  sgd_.step_part(parameters_.subspan(own, shard), own_gradients(part), momentum_at_[bucket]);
  Collective* const collective = reducer_.collective_of(bucket);
  const auto place = std::find(collectives_.begin(), collectives_.end(), collective) - collectives_.begin();
  const Buffer& mapped = mapped_[static_cast<std::size_t>(place)];
  const Clock::time_point now = Clock::now();
  gathers_[bucket] = {collective->all_gather(mapped.at(own * sizeof(float)), mapped.at(part.offset * sizeof(float)),
                                             shard * sizeof(float), {}),
                      now, std::nullopt};
}

void ShardedOptimizer::wait(std::size_t bucket) {
  Gather& one = gathers_[bucket];
  if (one.pending == nullptr) return;
  const Clock::time_point start = Clock::now();
  const auto outcome = std::exchange(one.pending, nullptr)->wait();
  waited_s_ += std::chrono::duration<double>(Clock::now() - start).count();
  if (outcome) {
    one.ended =
        one.started + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(outcome->seconds));
    return;
  }
  keep_error(fmt::format("all-gather of the parameters of bucket {} of {}", bucket + 1, gathers_.size()),
             outcome.error());
}

// The others are waited for too: until then they may write to the parameters.
void ShardedOptimizer::keep_error(const std::string& what, const Error& error) {
  if (!error_) error_ = Error{error.code, fmt::format("{} failed: {}", what, error.message)};
  for (Collective* collective : collectives_) collective->abort();
}

Result<StepCommunication> ShardedOptimizer::finish() {
  for (std::size_t bucket = 0; bucket < gathers_.size(); ++bucket) bring(bucket);
  updated_ = false;
  auto step = reducer_.finish();
  const double waited_s = std::exchange(waited_s_, 0);
  const auto error = std::exchange(error_, std::nullopt);
  if (!step) return step;
  if (error) return tl::unexpected(*error);
  step->exposed_s += waited_s;
  for (const Gather& one : gathers_) {
    if (one.ended) step->buckets.emplace_back(one.started, *one.ended);
  }
  step->total_s = time_under_way(step->buckets);
  return step;
}

Result<std::vector<float>> ShardedOptimizer::momentum() {
  const auto all = bootstrap_.all_gather(std::as_bytes(sgd_.momentum()));
  if (!all) return tl::unexpected(all.error());
  const BucketPlan& plan = reducer_.plan();
  std::vector<float> flat(parameters_.size());
  for (std::size_t bucket = 0; bucket < plan.buckets.size(); ++bucket) {
    const std::size_t shard = plan.shard_elements(plan.buckets[bucket]);
    for (std::size_t rank = 0; rank < plan.caps.shards; ++rank) {
      std::memcpy(flat.data() + plan.buckets[bucket].offset + rank * shard,
                  all->data() + (rank * held_ + momentum_at_[bucket]) * sizeof(float), shard * sizeof(float));
    }
  }
  return flat;
}

void ShardedOptimizer::set_momentum(std::vector<float> flat, const BucketPlan& plan) {
  gathers_.clear();
  gathers_.resize(plan.buckets.size());
  momentum_at_.clear();
  std::vector<float> own;
  for (const Bucket& bucket : plan.buckets) {
    momentum_at_.push_back(own.size());
    const auto shard = std::span(flat).subspan(own_begin(plan, bucket), plan.shard_elements(bucket));
    own.insert(own.end(), shard.begin(), shard.end());
  }
  held_ = own.size();
  sgd_.set_momentum(std::move(own));
}

}  // namespace clustar::bench::trainer::parallel
