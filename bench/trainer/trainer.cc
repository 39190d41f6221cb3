#include "bench/trainer/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <thread>
#include <utility>

#include "bench/trainer/compute/residence.h"
#include "bench/trainer/digest.h"
#include "bench/trainer/loss_report.h"
#include "bench/trainer/parallel/bucket_order.h"
#include "bench/trainer/parallel/make_optimizer.h"

namespace clustar::bench::trainer {
namespace {

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

bool shards(const TrainConfig& config, const Links& links) {
  return config.sharding == parallel::Sharding::kZero1 && links.collective != nullptr;
}

// Null: parameters and gradients are host memory.
OnDevice* device_of(const TrainConfig& config, const Links& links, Compute& compute) {
  return stays_on_device(config, links.size()) ? compute.on_device() : nullptr;
}

}  // namespace

Trainer::Trainer(const TrainConfig& config, const Model& model, const BucketPlan& plan, Compute& compute,
                 const Dataset& dataset, const Split& split, Links links, ProgressSink progress)
    : config_(config),
      model_(model),
      split_(split),
      links_(links),
      progress_(std::move(progress)),
      compute_(compute),
      predictions_(static_cast<double>(model.predictions)),
      parameters_(plan.capacity()),
      gradients_(plan.capacity()),
      loader_(dataset, config.prefetch.value_or(usual_prefetch(dataset))),
      reducer_(plan, gradients_, links.collective, config.codec, model.tensors(),
               {links.front, links.front != nullptr ? config.front_buckets : 0},
               shards(config, links) ? Reduction::kShard : Reduction::kWhole, device_of(config, links, compute)),
      scaler_(config.loss_scale),
      check_(links.bootstrap) {
  compute_.initialise(parameters_);
  optimizer_ = parallel::make_optimizer(config, reducer_, device_of(config, links, compute), parameters_, gradients_,
                                        scaler_, shards(config, links) ? links.bootstrap : nullptr);
  if (const auto slow = config.slow.find(links.rank()); slow != config.slow.end()) slow_ = slow->second;
}

Result<TrainReport> Trainer::run(Checkpoints* checkpoints) {
  if (links_.bootstrap != nullptr && config_.check_equal != CheckEqual::kOff) report_.replicas_identical = true;
  if (links_.bootstrap == nullptr) report_.replicas_identical = true;
  const auto first = checkpoints != nullptr ? resume(*checkpoints) : Result<int>(0);
  if (!first) return tl::unexpected(first.error());
  report_.first_epoch = *first;
  report_.prefetch = loader_.prefetch();
  for (int epoch = *first; epoch < config_.epochs && !is_over(); ++epoch) {
    if (auto ok = run_epoch(epoch); !ok) return tl::unexpected(ok.error());
    if (checkpoints == nullptr || !report_.failure.empty()) continue;
    if (!checkpoints->is_due(epoch + 1, epoch + 1 == config_.epochs || is_over())) continue;
    if (auto ok = save(*checkpoints, epoch + 1); !ok) return tl::unexpected(ok.error());
  }
  totals_.compute_s = totals_.train_s - totals_.exposed_comm_s;
  totals_.momentum_bytes = optimizer_->momentum_bytes();
  if (report_.failure.empty()) report_.failure = scaler_.useless(report_.steps);
  report_.loss_scale = scaler_.scale();
  report_.overflowed_steps = scaler_.skipped_steps();
  if (links_.layers != nullptr) totals_.layers = links_.layers->counts();
  for (const parallel::LayerCounts& layer : totals_.layers) totals_.compute_s -= layer.exposed_s;
  optimizer_->fetch();
  const std::vector<float> ordered = parallel::in_parameter_order(parameters_, plan());
  report_.parameters_digest = digest(std::as_bytes(std::span(ordered)));
  if (links_.collective != nullptr) {
    totals_.traffic_known = links_.collective->traffic().has_value();
    totals_.traffic = traffic();
    if (links_.loss != nullptr) totals_.loss = links_.loss->read();
  } else {
    totals_.traffic_known = true;
    totals_.loss.known = true;  // what was not sent was not lost
  }
  if (auto ok = gather_totals(totals_, links_.bootstrap, report_); !ok) return tl::unexpected(ok.error());
  if (report_.failure.empty()) report_.failure = ledger_breach(report_.ranks, config_.loss_bound_ppm);
  return std::move(report_);
}

TrainingState Trainer::training_state(std::span<float> network_state, std::span<float> momentum,
                                      std::span<float> scaling) {
  TrainingState state{.epochs = 0, .passes = compute_.passes(), .shared = {{"network", network_state}}, .own = {}};
  if (scaler_.is_on()) state.shared.push_back({"loss scale", scaling});
  const std::vector<graph::TensorSpec> tensors = model_.tensors();
  for (std::size_t b = 0; b < plan().buckets.size(); ++b) {
    const Bucket& bucket = plan().buckets[b];
    const std::span<float> residual = reducer_.residual(b);
    for (const std::size_t tensor : bucket.tensors) {
      const std::string& name = tensors[tensor].name;
      const std::size_t elements = tensors[tensor].elements;
      const std::size_t at = plan().tensor_offset[tensor];
      const auto add = [&](std::vector<TrainingState::Array>& arrays, const char* what, std::span<float> values) {
        if (!values.empty()) arrays.push_back({fmt::format("{} of {}", what, name), values});
      };
      add(state.shared, "parameters", std::span(parameters_).subspan(at, elements));
      add(state.shared, "momentum", momentum.subspan(at, elements));
      if (!residual.empty()) add(state.own, "residual", residual.subspan(at - bucket.offset, elements));
      if (!reducer_.lost().empty()) add(state.own, "lost", reducer_.lost().subspan(at, elements));
    }
  }
  return state;
}

Result<int> Trainer::resume(Checkpoints& checkpoints) {
  if (config_.checkpoint.resume.empty()) return 0;
  std::vector<float> network_state = compute_.state();
  auto momentum = optimizer_->momentum();
  if (!momentum) return tl::unexpected(momentum.error());
  auto scaling = scaler_.state();
  TrainingState state = training_state(network_state, *momentum, scaling);
  if (auto ok = checkpoints.load(state); !ok) return tl::unexpected(ok.error());
  compute_.set_state(network_state);
  compute_.set_passes(state.passes);
  optimizer_->set_momentum(std::move(*momentum), plan());
  scaler_.set_state(scaling);
  if (auto ok = check_goes_on(config_, state); !ok) return tl::unexpected(ok.error());
  return state.epochs;
}

// After an evaluation, which gives all ranks the same running statistics.
Result<void> Trainer::save(Checkpoints& checkpoints, int epochs) {
  std::vector<float> network_state = compute_.state();
  auto momentum = optimizer_->momentum();
  if (!momentum) return tl::unexpected(momentum.error());
  auto scaling = scaler_.state();
  TrainingState state = training_state(network_state, *momentum, scaling);
  state.epochs = epochs;
  state.accuracy = report_.epochs.back().accuracy;
  return checkpoints.save(state);
}

// Of both collectives, as far as they tell.
Traffic Trainer::traffic() const {
  Traffic sum = links_.collective->traffic().value_or(Traffic{});
  if (links_.front != nullptr) sum += links_.front->traffic().value_or(Traffic{});
  return sum;
}

bool Trainer::is_over() const { return !report_.failure.empty() || report_.target_reached; }

double Trainer::images_per_second() const {
  return totals_.train_s > 0 ? static_cast<double>(report_.images) / totals_.train_s : 0;
}

// This rank's shares of an epoch's steps, and then of its evaluation.
void Trainer::expect_batches(std::span<const std::uint32_t> order) {
  if (!compute_.learns()) return;
  const auto batch = static_cast<std::size_t>(config_.batch);
  for (std::size_t at = 0; at < order.size(); at += batch) {
    const auto mine = share(order.subspan(at, std::min(batch, order.size() - at)), links_.rank(), links_.size());
    for (int k = 0; k < config_.accumulate; ++k) loader_.expect(share(mine, k, config_.accumulate));
  }
  const std::span<const std::uint32_t> held_out = share(split_.held_out, links_.rank(), links_.size());
  const std::size_t most = compute_.largest_evaluation();
  for (std::size_t at = 0; at < held_out.size(); at += most) {
    loader_.expect(held_out.subspan(at, std::min(most, held_out.size() - at)));
  }
}

Result<void> Trainer::run_epoch(int epoch) {
  const std::vector<std::uint32_t> order = epoch_order(split_, config_.seed, epoch);
  expect_batches(order);
  const auto batch = static_cast<std::size_t>(config_.batch);
  const double train_s_before = totals_.train_s;
  Progress progress{.epoch = epoch + 1,
                    .epochs = config_.epochs,
                    .steps = (order.size() + batch - 1) / batch,
                    .learns = compute_.learns()};
  ShareLoss loss;
  for (std::size_t at = 0; at < order.size() && !is_over(); at += batch) {
    const std::size_t size = std::min(batch, order.size() - at);
    const bool last = at + batch >= order.size();
    const Clock::time_point start = Clock::now();
    const double checked_s = totals_.check_s;
    const auto step_loss = run_step(std::span(order).subspan(at, size));
    if (!step_loss) return tl::unexpected(step_loss.error());
    if (is_over()) break;  // by what the step before had done
    loss.sum += step_loss->sum;
    loss.examples += step_loss->examples;
    ++report_.steps;
    report_.images += size;
    if (!config_.overlap_forward || last) {
      if (auto ok = end_step(last); !ok) return ok;
    }
    const double step_s = seconds_since(start) - (totals_.check_s - checked_s);
    totals_.train_s += step_s;
    if (report_.step_seconds.size() < kMaxStepSeconds) report_.step_seconds.push_back(step_s);
    ++progress.step;
    // A step that was skipped has the loss of the one before.
    if (step_loss->examples > 0) shown_loss_ = step_loss->sum / predictions_ / static_cast<double>(step_loss->examples);
    progress.loss = shown_loss_;
    progress.images_per_second = images_per_second();
    if (compute_.learns()) extend_curve(progress.loss, progress.steps);
    if (progress_) progress_(progress);
  }
  return finish_epoch(epoch, loss, totals_.train_s - train_s_before);
}

void Trainer::extend_curve(double loss, std::size_t steps_of_epoch) {
  const std::uint64_t total = steps_of_epoch * static_cast<std::uint64_t>(config_.epochs);
  curve_loss_ += loss;
  if (++curve_steps_ * kMaxCurvePoints < total) return;
  report_.curve.push_back({report_.steps, curve_loss_ / static_cast<double>(curve_steps_), totals_.train_s});
  curve_loss_ = 0;
  curve_steps_ = 0;
}

// Returns the loss summed over this rank's share. With overlap_forward it ends the step before, whose last buckets may
// arrive while this one's first layers compute.
Result<Trainer::ShareLoss> Trainer::run_step(std::span<const std::uint32_t> global_batch) {
  const auto mine = share(global_batch, links_.rank(), links_.size());
  if (links_.collective != nullptr && !links_.collective->begin_step()) {
    for (int k = 0; k < config_.accumulate && compute_.learns(); ++k) loader_.skip();
    return skip_step(mine.size());
  }
  const Clock::time_point begin = Clock::now();
  slow_down();
  const double weight = 1 / (static_cast<double>(global_batch.size()) * predictions_);
  ShareLoss loss{0, mine.size()};
  step_compute_s_ = 0;
  for (int k = 0; k < config_.accumulate; ++k) {
    const bool last = k + 1 == config_.accumulate;
    const auto part = run_micro_batch(share(mine, k, config_.accumulate).size(), weight, last);
    if (!part) return tl::unexpected(part.error());
    if (is_over()) return ShareLoss{};
    loss.sum += part->loss;
  }
  step_times_.begin = begin;
  note_compute(step_compute_s_);
  step_open_ = true;
  return loss;
}

// What learns nothing has no use for examples.
Result<const Batch*> Trainer::next_batch() {
  static const Batch kNone;
  if (!compute_.learns()) return &kNone;
  const double waited_before_s = loader_.waited_s();
  auto batch = loader_.next();
  totals_.load_s += loader_.waited_s() - waited_before_s;
  return batch;
}

// Gradients of all but a step's last micro-batch stay here, and are added to the last one's before they go.
Result<LossSum> Trainer::run_micro_batch(std::size_t examples, double weight, bool last) {
  const auto batch = next_batch();
  if (!batch) return tl::unexpected(batch.error());
  const Clock::time_point computes = Clock::now();
  compute_.forward(parameters_.data(), (*batch)->x, examples,
                   [this](std::size_t first_tensor, std::size_t count) { need(first_tensor, count); });
  step_compute_s_ += seconds_since(computes);
  if (auto ok = end_step(false); !ok) return tl::unexpected(ok.error());
  if (is_over()) return LossSum{};
  if (auto ok = check_layers(); !ok) return tl::unexpected(ok.error());
  const Clock::time_point backward = Clock::now();
  // Not before the step before is over, which may change the scaler's.
  const auto scale = static_cast<float>(weight * scaler_.scale());
  const LossSum loss =
      compute_.backward(parameters_.data(), (*batch)->labels, scale, gradients_.data(), [&](std::size_t tensor) {
        if (last) tensor_ready(tensor);
        if (links_.layers != nullptr) exchange_behind(tensor);
      });
  if (last) {
    earlier_.clear();
    step_times_ = {.backward = backward, .backward_end = Clock::now()};
  } else {
    earlier_.add(gradients_);
  }
  step_compute_s_ += seconds_since(backward);
  if (auto ok = check_layers(); !ok) return tl::unexpected(ok.error());
  return loss;
}

void Trainer::exchange_behind(std::size_t tensor) {
  const Clock::time_point start = Clock::now();
  links_.layers->backward(tensor);
  compute_.stand_still(seconds_since(start));
}

Result<void> Trainer::check_layers() const {
  return links_.layers != nullptr ? links_.layers->check() : Result<void>();
}

void Trainer::tensor_ready(std::size_t tensor) {
  earlier_.add_to(gradients_, plan().tensor_offset[tensor], plan().tensor_elements[tensor]);
  if (report_.steps == 0) ready_order_.push_back(tensor);
  reducer_.tensor_ready(tensor);
}

// The buckets go round without this rank's gradients.
Result<Trainer::ShareLoss> Trainer::skip_step(std::size_t examples) {
  if (auto ok = end_step(false); !ok) return tl::unexpected(ok.error());
  if (is_over()) return ShareLoss{};
  const Clock::time_point now = Clock::now();
  step_times_ = {.begin = now, .backward = now, .backward_end = now};
  for (std::size_t tensor = plan().tensor_offset.size(); tensor-- > 0;) reducer_.tensor_ready(tensor);
  step_open_ = true;
  ++totals_.skipped_steps;
  totals_.skipped_images += examples;
  return ShareLoss{};
}

void Trainer::slow_down() const {
  if (slow_ > 1) std::this_thread::sleep_for(std::chrono::duration<double>((slow_ - 1) * computed_s_));
}

// A step that the machine held up is no reason to sleep long in the next; nor is the first, which loads libraries.
void Trainer::note_compute(double seconds) {
  constexpr double kGrowth = 1.05;
  if (report_.steps == 0) return;
  computed_s_ = computed_s_ > 0 ? std::min(seconds, computed_s_ * kGrowth) : seconds;
}

void Trainer::need(std::size_t first_tensor, std::size_t count) {
  if (step_open_) {
    const double before = waited_s();
    for (std::size_t tensor = first_tensor; tensor < first_tensor + count; ++tensor) {
      optimizer_->bring(reducer_.bucket_of(tensor));
    }
    if (first_tensor == 0) totals_.front_wait_s += waited_s() - before;
  }
  if (links_.layers != nullptr) links_.layers->forward(first_tensor, count);
}

// What forward has not asked for, and the step's accounts. Nothing without an open step.
Result<void> Trainer::end_step(bool epoch_over) {
  if (!step_open_) return {};
  step_open_ = false;
  // No forward pass follows on an epoch's last step, but its first layer counts as in the others.
  if (config_.overlap_forward) {
    const double before = waited_s();
    optimizer_->bring(reducer_.bucket_of(0));
    totals_.front_wait_s += waited_s() - before;
  }
  auto communication = optimizer_->finish();
  if (!communication) return tl::unexpected(communication.error());
  if (!config_.overlap_forward) totals_.front_wait_s += communication->exposed_s;
  step_times_.end = Clock::now();
  step_times_.buckets = std::move(communication->buckets);
  report_.timeline.add(std::exchange(step_times_, {}));
  totals_.exposed_comm_s += communication->exposed_s;
  totals_.total_comm_s += communication->total_s;
  totals_.codec_s += communication->codec_s;
  totals_.missing_contributions += communication->missing_contributions;
  totals_.expected_contributions += communication->expected_contributions;
  totals_.given_squares += communication->given_squares;
  totals_.lost_squares += communication->lost_squares;
  if (std::string why = scaler_.exhausted(config_.rate); !why.empty()) report_.failure = std::move(why);
  if (auto ok = check_replicas(epoch_over); !ok) return ok;
  return ready_order_.empty() ? Result<void>() : rebuild_buckets();
}

// Once, after the first step.
Result<void> Trainer::rebuild_buckets() {
  const std::vector<std::size_t> order = std::exchange(ready_order_, {});
  if (!config_.rebuild_buckets || config_.tolerance) return {};
  const auto next = parallel::rebuilt_buckets(plan(), order, links_.bootstrap);
  if (!next) return tl::unexpected(next.error());
  const bool fits = *next && (*next)->buckets.size() > config_.front_buckets;
  report_.buckets_changed = fits;
  if (!fits) return {};
  report_.initial_buckets = plan();
  auto momentum = optimizer_->momentum();
  if (!momentum) return tl::unexpected(momentum.error());
  parallel::relocate(*momentum, plan(), **next);
  parallel::relocate(parameters_, plan(), **next);
  optimizer_->set_momentum(std::move(*momentum), **next);
  reducer_.set_plan(**next);
  compute_.set_tensor_offsets(plan().tensor_offset);
  return {};
}

Result<void> Trainer::check_replicas(bool epoch_over) {
  if (config_.check_equal == CheckEqual::kOff) return {};
  const Clock::time_point start = Clock::now();
  if (config_.check_equal == CheckEqual::kEvery || epoch_over) {
    optimizer_->fetch();
    check_.record(report_.steps, parameters_);
  }
  if (check_.group_is_full() || epoch_over) {
    const auto mismatch = check_.compare();
    if (!mismatch) return tl::unexpected(mismatch.error());
    if (*mismatch) {
      report_.replicas_identical = false;
      report_.failure = (*mismatch)->message;
    }
  }
  totals_.check_s += seconds_since(start);
  return {};
}

// Every rank takes rank 0's running statistics. DDP copies them before every forward pass (broadcast_buffers), but a
// forward pass of training does not read them: here is where that shows.
Result<void> Trainer::share_state() {
  const std::vector<float> mine = compute_.state();
  if (links_.bootstrap == nullptr || mine.empty()) return {};
  const auto all = links_.bootstrap->all_gather(std::as_bytes(std::span(mine)));
  if (!all) return tl::unexpected(all.error());
  std::vector<float> first(mine.size());
  std::memcpy(first.data(), all->data(), first.size() * sizeof(float));
  compute_.set_state(first);
  return {};
}

Result<Trainer::Evaluation> Trainer::evaluate() {
  const Clock::time_point start = Clock::now();
  if (auto ok = share_state(); !ok) return tl::unexpected(ok.error());
  std::span<const std::uint32_t> mine = share(split_.held_out, links_.rank(), links_.size());
  LossSum sum;
  while (!mine.empty()) {
    const std::size_t size = std::min(compute_.largest_evaluation(), mine.size());
    const auto batch = loader_.next();
    if (!batch) return tl::unexpected(batch.error());
    const LossSum part = compute_.evaluate(parameters_.data(), (*batch)->x, (*batch)->labels, size);
    sum.loss += part.loss;
    sum.correct += part.correct;
    mine = mine.subspan(size);
  }
  const auto all = sum_over_ranks({sum.loss, static_cast<double>(sum.correct)});
  if (!all) return tl::unexpected(all.error());
  totals_.evaluate_s += seconds_since(start);
  const double count = static_cast<double>(split_.held_out.size()) * predictions_;
  return Evaluation{(*all)[0] / count, (*all)[1] / count};
}

Result<void> Trainer::finish_epoch(int epoch, const ShareLoss& mine, double train_s) {
  if (!report_.failure.empty()) return {};
  if (!compute_.learns()) {
    if (progress_) {
      progress_({.epoch = epoch + 1,
                 .epochs = config_.epochs,
                 .epoch_over = true,
                 .learns = false,
                 .images_per_second = images_per_second()});
    }
    return {};
  }
  const auto loss = sum_over_ranks({mine.sum, static_cast<double>(mine.examples)});
  if (!loss) return tl::unexpected(loss.error());
  const auto held_out = evaluate();
  if (!held_out) return tl::unexpected(held_out.error());
  EpochMetrics metrics;
  metrics.loss = (*loss)[0] / ((*loss)[1] * predictions_);
  metrics.held_out_loss = held_out->loss;
  metrics.accuracy = held_out->accuracy;
  metrics.train_s = train_s;
  metrics.step = report_.steps;
  report_.epochs.push_back(metrics);
  if (!std::isfinite(metrics.loss)) {
    report_.failure = fmt::format(
        "the loss is not finite after epoch {}: the training diverged; try a smaller rate "
        "than {}",
        epoch + 1, config_.rate);
  }
  report_.target_reached = config_.target_accuracy && metrics.accuracy >= *config_.target_accuracy;
  if (progress_) {
    progress_({.epoch = epoch + 1,
               .epochs = config_.epochs,
               .epoch_over = true,
               .loss = metrics.loss,
               .accuracy = metrics.accuracy,
               .images_per_second = images_per_second()});
  }
  return {};
}

Result<std::vector<double>> Trainer::sum_over_ranks(std::vector<double> mine) {
  if (links_.bootstrap == nullptr) return mine;
  const auto gathered = links_.bootstrap->all_gather(std::as_bytes(std::span(mine)));
  if (!gathered) return tl::unexpected(gathered.error());
  // Rank order on every rank, so that all of them get the same bits and take the same decisions.
  std::vector<double> sums(mine.size());
  for (std::size_t at = 0; at < gathered->size(); at += mine.size() * sizeof(double)) {
    std::memcpy(mine.data(), gathered->data() + at, mine.size() * sizeof(double));
    for (std::size_t i = 0; i < mine.size(); ++i) sums[i] += mine[i];
  }
  return sums;
}

}  // namespace clustar::bench::trainer
