// Data-parallel training of one model: one Trainer per rank.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "bench/proxy/bootstrap.h"
#include "bench/trainer/checkpoint/checkpoints.h"
#include "bench/trainer/collective.h"
#include "bench/trainer/compute/compute.h"
#include "bench/trainer/config.h"
#include "bench/trainer/data/dataset.h"
#include "bench/trainer/data/loader.h"
#include "bench/trainer/loss.h"
#include "bench/trainer/loss_meter.h"
#include "bench/trainer/metrics.h"
#include "bench/trainer/model.h"
#include "bench/trainer/parallel/gradient_sum.h"
#include "bench/trainer/parallel/layer_traffic.h"
#include "bench/trainer/parallel/optimizer.h"
#include "bench/trainer/precision/loss_scaler.h"
#include "bench/trainer/reducer.h"
#include "bench/trainer/replica_check.h"
#include "transport/base/result.h"

namespace clustar::bench::trainer {

// How a rank reaches the others. Both null: there is one rank, and nothing is communicated. Only the collective null:
// the ranks train apart (TrainConfig::no_communication).
struct Links {
  Collective* collective = nullptr;
  proxy::Bootstrap* bootstrap = nullptr;
  const LossMeter* loss = nullptr;           // null: what the collective's plugin loses is not known
  Collective* front = nullptr;               // of TrainConfig::front_buckets; null: there are none
  parallel::LayerTraffic* layers = nullptr;  // of TrainConfig::layers; null: there are none

  int rank() const { return bootstrap != nullptr ? bootstrap->rank() : 0; }
  int size() const { return bootstrap != nullptr ? bootstrap->size() : 1; }
};

// After a step (epoch_over false) or an epoch. Numbers count from 1.
struct Progress {
  int epoch = 0;
  int epochs = 0;
  std::size_t step = 0;  // within the epoch
  std::size_t steps = 0;
  bool epoch_over = false;
  bool learns = true;            // false: there are no losses and no accuracy
  bool emulated = false;         // by a GPU that is not there: the rate means nothing
  double loss = 0;               // a step: of this rank's share; an epoch: of all
  double accuracy = 0;           // epochs only
  double images_per_second = 0;  // since training began, all ranks
};
using ProgressSink = std::function<void(const Progress&)>;

// Every global batch of a seeded epoch order is split over the ranks into shares that differ by at most one example,
// each weighted by 1 / global batch, so the sum of the ranks' gradients is the gradient of the joint batch exactly,
// whatever divides what. Computes on the calling thread; a thread of the loader's prepares batches.
class Trainer {
 public:
  // All arguments but `plan` must outlive the trainer; `split` is of `dataset`, whose images fit `model`, as `compute`
  // does. What does not learn gets no images.
  Trainer(const TrainConfig& config, const Model& model, const BucketPlan& plan, Compute& compute,
          const Dataset& dataset, const Split& split, Links links, ProgressSink progress);

  // Once. `checkpoints`: null: none are read or written. A failed transfer or a lost rank is an error; replicas that
  // differ, a loss that is not finite and more missing bytes than allowed end the run with report.failure, because then
  // all ranks know and the measurements are worth keeping.
  Result<TrainReport> run(Checkpoints* checkpoints = nullptr);

  // In the layout of plan(), which is another one once buckets were rebuilt.
  std::span<const float> parameters() const { return parameters_; }
  const BucketPlan& plan() const { return reducer_.plan(); }
  // Running statistics, which are rank 0's after each evaluation.
  std::vector<float> state() const { return compute_.state(); }

 private:
  struct Evaluation {
    double loss = 0;
    double accuracy = 0;
  };
  // The run's epochs that are over: what it continues.
  Result<int> resume(Checkpoints& checkpoints);
  Result<void> save(Checkpoints& checkpoints, int epochs);
  // The arguments are what is to become the network's, the optimiser's and the scaler's, or was.
  TrainingState training_state(std::span<float> network_state, std::span<float> momentum, std::span<float> scaling);
  void expect_batches(std::span<const std::uint32_t> order);
  Result<void> run_epoch(int epoch);
  // Of the examples of this rank's share.
  struct ShareLoss {
    double sum = 0;
    std::size_t examples = 0;  // 0: the step was skipped
  };
  Result<ShareLoss> run_step(std::span<const std::uint32_t> global_batch);
  Result<const Batch*> next_batch();
  Result<LossSum> run_micro_batch(std::size_t examples, double weight, bool last);
  void exchange_behind(std::size_t tensor);
  Result<void> check_layers() const;
  void tensor_ready(std::size_t tensor);
  Result<ShareLoss> skip_step(std::size_t examples);
  Result<void> rebuild_buckets();
  void slow_down() const;
  void note_compute(double seconds);
  void need(std::size_t first_tensor, std::size_t count);
  double waited_s() const { return reducer_.waited_s() + optimizer_->waited_s(); }
  Result<void> end_step(bool epoch_over);
  Result<void> check_replicas(bool epoch_over);
  Traffic traffic() const;
  Result<void> share_state();
  Result<Evaluation> evaluate();
  Result<void> finish_epoch(int epoch, const ShareLoss& mine, double train_s);
  // Sums of all ranks, for numbers that each rank has of its own examples.
  Result<std::vector<double>> sum_over_ranks(std::vector<double> mine);
  void extend_curve(double loss, std::size_t steps_of_epoch);
  bool is_over() const;
  double images_per_second() const;

  const TrainConfig& config_;
  const Model& model_;
  const Split& split_;
  Links links_;
  ProgressSink progress_;
  Compute& compute_;
  double predictions_;  // of each example
  std::vector<float> parameters_;
  std::vector<float> gradients_;
  Loader loader_;
  GradientReducer reducer_;
  LossScaler scaler_;
  std::unique_ptr<parallel::Optimizer> optimizer_;
  parallel::GradientSum earlier_;         // micro-batches of this step
  std::vector<std::size_t> ready_order_;  // of the first step's gradients
  ReplicaCheck check_;
  RankTotals totals_;
  bool step_open_ = false;     // backward is over, and not all of its buckets are in the parameters
  StepTimes step_times_;       // of the open step
  double shown_loss_ = 0;      // of the latest step that was not skipped
  double slow_ = 1;            // TrainConfig::slow
  double step_compute_s_ = 0;  // by this step so far
  double computed_s_ = 0;      // by one of the latest steps
  TrainReport report_;
  double curve_loss_ = 0;  // summed since the curve's last point
  std::uint64_t curve_steps_ = 0;
};

}  // namespace clustar::bench::trainer
