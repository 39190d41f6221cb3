#include "bench/trainer/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <thread>
#include <utility>

#include "bench/trainer/digest.h"
#include "bench/trainer/loss.h"
#include "bench/trainer/loss_report.h"
#include "bench/trainer/random.h"

namespace clustar::bench::trainer {
namespace {

constexpr std::size_t kMostEvaluated = 256;             // examples at a time
constexpr std::size_t kEvaluatedFloats = 16u << 20;     // of all activations together
constexpr std::uint64_t kFirstDrawStream = 1ull << 42;  // of dropout: one for each rank

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

std::size_t largest_share(int batch, int ranks) { return static_cast<std::size_t>((batch + ranks - 1) / ranks); }

// Examples that are evaluated at a time: no more than training has, where activations are large.
std::size_t evaluation_batch(const graph::Graph& graph, std::size_t share) {
  std::size_t floats = 0;
  for (const graph::Node& node : graph.nodes()) floats += node.shape.elements();
  return std::clamp(kEvaluatedFloats / floats, std::min(share, kMostEvaluated), kMostEvaluated);
}

std::uint64_t draws_of(std::uint64_t seed, int rank) {
  return Rng(seed, kFirstDrawStream + static_cast<std::uint64_t>(rank)).next();
}

}  // namespace

Trainer::Trainer(const TrainConfig& config, const Model& model, const BucketPlan& plan, const Dataset& dataset,
                 const Split& split, Links links, ProgressSink progress)
    : config_(config),
      model_(model),
      split_(split),
      links_(links),
      progress_(std::move(progress)),
      classes_(model.classes),
      predictions_(static_cast<double>(model.predictions)),
      evaluation_batch_(evaluation_batch(model.graph, largest_share(config.batch, links.size()))),
      parameters_(plan.elements),
      gradients_(plan.elements),
      loader_(dataset, config.prefetch.value_or(usual_prefetch(dataset))),
      math_(graph::make_cpu_math()),
      network_(model.graph, *math_, plan.tensor_offset,
               std::max(evaluation_batch_, largest_share(config.batch, links.size())),
               draws_of(config.seed, links.rank())),
      reducer_(plan, gradients_, links.collective, config.codec, model.tensors(),
               {links.front, links.front != nullptr ? config.front_buckets : 0}),
      plan_(plan),
      sgd_(plan.elements, static_cast<float>(config.rate), static_cast<float>(config.momentum),
           static_cast<float>(config.weight_decay)),
      check_(links.bootstrap) {
  network_.initialise(parameters_, config.seed);
  const auto slow = config.slow.find(links.rank());
  if (slow != config.slow.end()) slow_ = slow->second;
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
  report_.parameters_digest = digest(std::as_bytes(std::span(parameters_)));
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

TrainingState Trainer::training_state(std::span<float> network_state) {
  TrainingState state{.epochs = 0, .passes = network_.passes(), .shared = {{"network", network_state}}, .own = {}};
  const std::vector<graph::TensorSpec> tensors = model_.tensors();
  for (std::size_t b = 0; b < plan_.buckets.size(); ++b) {
    const Bucket& bucket = plan_.buckets[b];
    const std::span<float> residual = reducer_.residual(b);
    for (const std::size_t tensor : bucket.tensors) {
      const auto& [name, elements, columns] = tensors[tensor];
      const std::size_t at = plan_.tensor_offset[tensor];
      const auto add = [&](std::vector<TrainingState::Array>& arrays, const char* what, std::span<float> values) {
        if (!values.empty()) arrays.push_back({fmt::format("{} of {}", what, name), values});
      };
      add(state.shared, "parameters", std::span(parameters_).subspan(at, elements));
      add(state.shared, "velocity", sgd_.velocity().subspan(at, elements));
      if (!residual.empty()) add(state.own, "residual", residual.subspan(at - bucket.offset, elements));
      if (!reducer_.lost().empty()) add(state.own, "lost", reducer_.lost().subspan(at, elements));
    }
  }
  return state;
}

Result<int> Trainer::resume(Checkpoints& checkpoints) {
  if (config_.checkpoint.resume.empty()) return 0;
  std::vector<float> network_state(network_.state_size());
  TrainingState state = training_state(network_state);
  if (auto ok = checkpoints.load(state); !ok) return tl::unexpected(ok.error());
  network_.set_state(network_state);
  network_.set_passes(state.passes);
  if (state.epochs < config_.epochs) return state.epochs;
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("checkpoint '{}' is of the end of epoch {}; allowed: --epochs above that",
                          config_.checkpoint.resume, state.epochs));
}

// After an evaluation, which gives all ranks the same running statistics.
Result<void> Trainer::save(Checkpoints& checkpoints, int epochs) {
  std::vector<float> network_state = network_.state();
  TrainingState state = training_state(network_state);
  state.epochs = epochs;
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
  const auto batch = static_cast<std::size_t>(config_.batch);
  for (std::size_t at = 0; at < order.size(); at += batch) {
    loader_.expect(share(order.subspan(at, std::min(batch, order.size() - at)), links_.rank(), links_.size()));
  }
  const std::span<const std::uint32_t> held_out = share(split_.held_out, links_.rank(), links_.size());
  for (std::size_t at = 0; at < held_out.size(); at += evaluation_batch_) {
    loader_.expect(held_out.subspan(at, std::min(evaluation_batch_, held_out.size() - at)));
  }
}

Result<void> Trainer::run_epoch(int epoch) {
  const std::vector<std::uint32_t> order = epoch_order(split_, config_.seed, epoch);
  expect_batches(order);
  const auto batch = static_cast<std::size_t>(config_.batch);
  const double train_s_before = totals_.train_s;
  Progress progress{.epoch = epoch + 1, .epochs = config_.epochs, .steps = (order.size() + batch - 1) / batch};
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
    extend_curve(progress.loss, progress.steps);
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
    loader_.skip();
    return skip_step(mine.size());
  }
  const Clock::time_point begin = Clock::now();
  slow_down();
  const double waited_s = loader_.waited_s();
  const auto batch = loader_.next();
  if (!batch) return tl::unexpected(batch.error());
  totals_.load_s += loader_.waited_s() - waited_s;
  const Clock::time_point computes = Clock::now();
  const std::span<const float> outputs =
      network_.forward(parameters_.data(), (*batch)->x.data(), mine.size(),
                       [this](std::size_t first_tensor, std::size_t count) { need(first_tensor, count); });
  const double forward_s = seconds_since(computes);
  if (auto ok = end_step(false); !ok) return tl::unexpected(ok.error());
  if (is_over()) return ShareLoss{};
  step_times_ = {.begin = begin, .backward = Clock::now()};
  output_gradient_.resize(outputs.size());
  const auto scale = static_cast<float>(1 / (static_cast<double>(global_batch.size()) * predictions_));
  const LossSum loss = softmax_cross_entropy(outputs, (*batch)->labels, classes_, scale, output_gradient_);
  network_.backward(parameters_.data(), output_gradient_, gradients_.data(),
                    [this](std::size_t tensor) { reducer_.tensor_ready(tensor); });
  step_times_.backward_end = Clock::now();
  note_compute(forward_s + std::chrono::duration<double>(step_times_.backward_end - step_times_.backward).count());
  step_open_ = true;
  return ShareLoss{loss.loss, mine.size()};
}

// The buckets go round without this rank's gradients.
Result<Trainer::ShareLoss> Trainer::skip_step(std::size_t examples) {
  if (auto ok = end_step(false); !ok) return tl::unexpected(ok.error());
  if (is_over()) return ShareLoss{};
  const Clock::time_point now = Clock::now();
  step_times_ = {.begin = now, .backward = now, .backward_end = now};
  for (std::size_t tensor = plan_.tensor_offset.size(); tensor-- > 0;) reducer_.tensor_ready(tensor);
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
  if (!step_open_) return;
  const double before = reducer_.waited_s();
  for (std::size_t tensor = first_tensor; tensor < first_tensor + count; ++tensor) settle(reducer_.bucket_of(tensor));
  if (first_tensor == 0) totals_.front_wait_s += reducer_.waited_s() - before;
}

void Trainer::settle(std::size_t bucket) {
  if (reducer_.settle(bucket))
    sgd_.step(parameters_, gradients_, plan_.buckets[bucket].offset, plan_.buckets[bucket].elements);
}

// What forward has not asked for, and the step's accounts. Nothing without an open step.
Result<void> Trainer::end_step(bool epoch_over) {
  if (!step_open_) return {};
  step_open_ = false;
  // No forward pass follows on an epoch's last step, but its first layer counts as in the others.
  if (config_.overlap_forward) {
    const double before = reducer_.waited_s();
    settle(reducer_.bucket_of(0));
    totals_.front_wait_s += reducer_.waited_s() - before;
  }
  for (std::size_t bucket = 0; bucket < plan_.buckets.size(); ++bucket) settle(bucket);
  if (!config_.overlap_forward) totals_.front_wait_s += reducer_.waited_s();
  auto communication = reducer_.finish();
  if (!communication) return tl::unexpected(communication.error());
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
  return check_replicas(epoch_over);
}

Result<void> Trainer::check_replicas(bool epoch_over) {
  if (config_.check_equal == CheckEqual::kOff) return {};
  const Clock::time_point start = Clock::now();
  if (config_.check_equal == CheckEqual::kEvery || epoch_over) check_.record(report_.steps, parameters_);
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
  if (links_.bootstrap == nullptr || network_.state_size() == 0) return {};
  const std::vector<float> mine = network_.state();
  const auto all = links_.bootstrap->all_gather(std::as_bytes(std::span(mine)));
  if (!all) return tl::unexpected(all.error());
  std::vector<float> first(mine.size());
  std::memcpy(first.data(), all->data(), first.size() * sizeof(float));
  network_.set_state(first);
  return {};
}

Result<Trainer::Evaluation> Trainer::evaluate() {
  const Clock::time_point start = Clock::now();
  if (auto ok = share_state(); !ok) return tl::unexpected(ok.error());
  std::span<const std::uint32_t> mine = share(split_.held_out, links_.rank(), links_.size());
  LossSum sum;
  while (!mine.empty()) {
    const std::size_t size = std::min(evaluation_batch_, mine.size());
    const auto batch = loader_.next();
    if (!batch) return tl::unexpected(batch.error());
    const LossSum part = softmax_cross_entropy(network_.evaluate(parameters_.data(), (*batch)->x.data(), size),
                                               (*batch)->labels, classes_, 1.0f, {});
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
