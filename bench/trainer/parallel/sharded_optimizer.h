// ZeRO stage 1 (Rajbhandari et al., SC 2020): gradients come by reduce-scatter, each rank updates its shard of every
// bucket and keeps the momentum of that alone, and all-gathers bring the other shards. An all-gather never loses, so
// replicas stay equal whatever the reduce-scatters may lose.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/proxy/bootstrap.h"
#include "bench/trainer/collective.h"
#include "bench/trainer/parallel/optimizer.h"

namespace clustar::bench::trainer::parallel {

class ShardedOptimizer final : public Optimizer {
 public:
  // `reducer` leaves Reduction::kShard by collectives; all outlive it. It, too, and the parameters stay until
  // the collectives' close(), as they write to both.
  // `in_forward`: buckets are wanted from the last to the first, by a forward pass; otherwise all at once. With a
  // `scaler` that is on, ranks tell each other in each step whether their shards are finite, by an all-gather.
  ShardedOptimizer(GradientReducer& reducer, std::span<float> parameters, std::span<float> gradients,
                   const SgdOptions& options, LossScaler& scaler, proxy::Bootstrap& bootstrap, bool in_forward);

  // The first of a step updates all shards and starts all all-gathers, in the order in which buckets are wanted.
  void bring(std::size_t bucket) override;
  double waited_s() const override { return waited_s_; }
  Result<StepCommunication> finish() override;
  // The ranks' shards meet over the bootstrap.
  Result<std::vector<float>> momentum() override;
  void set_momentum(std::vector<float> flat, const BucketPlan& plan) override;
  std::size_t momentum_bytes() const override { return held_ * sizeof(float); }

 private:
  struct Gather {
    std::unique_ptr<Pending> pending;  // null: not started, or over
    Clock::time_point started;
    std::optional<Clock::time_point> ended;
  };
  std::size_t own_begin(const BucketPlan& plan, const Bucket& bucket) const;
  std::span<float> own_gradients(const Bucket& bucket) const;
  void update_all();
  bool all_shards_finite();
  void update(std::size_t bucket);
  void keep_error(const std::string& what, const Error& error);
  void wait(std::size_t bucket);

  GradientReducer& reducer_;
  std::span<float> parameters_;
  std::span<float> gradients_;
  LossScaler& scaler_;
  proxy::Bootstrap& bootstrap_;
  bool in_forward_;
  std::vector<Collective*> collectives_;  // those of the buckets, each once
  std::vector<Buffer> mapped_;            // the parameters, for each
  std::vector<std::uint32_t> finite_;     // by rank, of this step; empty where nobody asks
  Buffer mapped_finite_;
  std::vector<std::size_t> momentum_at_;  // by bucket: where its shard's begins
  std::size_t held_ = 0;                  // elements of all its shards
  Sgd sgd_;
  std::vector<Gather> gathers_;  // by bucket
  bool updated_ = false;         // in this step
  double waited_s_ = 0;
  std::optional<Error> error_;  // the step's first
};

}  // namespace clustar::bench::trainer::parallel
