// What makes a step's gradients into parameters, bucket by bucket: on every rank all of them, or each rank its shard.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "bench/proxy/bootstrap.h"
#include "bench/trainer/buckets.h"
#include "bench/trainer/precision/loss_scaler.h"
#include "bench/trainer/reducer.h"
#include "bench/trainer/sgd.h"
#include "transport/base/result.h"

namespace clustar::bench::trainer::parallel {

// kZero1: ZeRO stage 1 (Rajbhandari et al., SC 2020): a rank has the optimiser's state of its shard of each bucket
// only.
enum class Sharding : std::uint8_t { kNone, kZero1 };
const char* to_string(Sharding sharding);  // "none", "zero1"

// One step: bring() for buckets that are wanted early, then finish(). All ranks bring buckets in the same order.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  // After backward: until the parameters of `bucket` are those after the step. What fails, finish() reports.
  virtual void bring(std::size_t bucket) = 0;
  // Of this step so far, beside what the reducer waited.
  virtual double waited_s() const { return 0; }
  // Brings the buckets that are left, and gives the whole step's communication.
  virtual Result<StepCommunication> finish() = 0;
  // Between two steps: the host's parameters become those of the last step, where they are elsewhere.
  virtual void fetch() {}
  // Between two steps: the momentum of all parameters, in the layout of the reducer's plan, and fetch(). All ranks call
  // it.
  virtual Result<std::vector<float>> momentum() = 0;
  // As momentum() gave it, or the same of an equal run; from now on in the layout of `plan`, which becomes the
  // reducer's, as are the host's parameters, which are the run's.
  virtual void set_momentum(std::vector<float> flat, const BucketPlan& plan) = 0;
  virtual std::size_t momentum_bytes() const = 0;  // of this rank
};

// Where buckets are sums, every rank updates all.
class WholeOptimizer final : public Optimizer {
 public:
  // All outlive it; the arrays are in the layout of the reducer's plan. With a `scaler` that is on, whether a step
  // counts shows in all sums: the first bring() waits for all.
  WholeOptimizer(GradientReducer& reducer, std::span<float> parameters, std::span<float> gradients,
                 const SgdOptions& options, LossScaler& scaler)
      : reducer_(reducer),
        parameters_(parameters),
        gradients_(gradients),
        scaler_(scaler),
        sgd_(parameters.size(), options.rate, options.momentum, options.weight_decay) {}

  void bring(std::size_t bucket) override;
  Result<StepCommunication> finish() override;
  Result<std::vector<float>> momentum() override;
  void set_momentum(std::vector<float> flat, const BucketPlan&) override { sgd_.set_momentum(std::move(flat)); }
  std::size_t momentum_bytes() const override { return reducer_.plan().parameters() * sizeof(float); }

 private:
  void update(const Bucket& bucket);
  void step_scaled();

  GradientReducer& reducer_;
  std::span<float> parameters_;
  std::span<float> gradients_;
  LossScaler& scaler_;
  Sgd sgd_;
  bool stepped_ = false;  // this step, by step_scaled()
};

// gradients / scale, in place.
void unscale(std::span<float> gradients, float scale);

}  // namespace clustar::bench::trainer::parallel
