// What a run measured, and its JSON form. Keys that tools rely on are listed at to_results().
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "bench/proxy/bootstrap.h"
#include "bench/trainer/buckets.h"
#include "bench/trainer/collective.h"
#include "bench/trainer/config.h"
#include "bench/trainer/loss_meter.h"
#include "bench/trainer/model.h"
#include "bench/trainer/parallel/layer_traffic.h"
#include "bench/trainer/timeline.h"
#include "transport/base/result.h"

namespace clustar::bench::trainer {

// Sums over all steps on one rank. Plain data: it travels over the bootstrap as it is.
struct RankTotals {
  double train_s = 0;    // steps only: no evaluation, no replica check, no reading of data sets into memory
  double compute_s = 0;  // batches, forward, backward, update
  double load_s = 0;     // of compute_s: steps waited for their batches
  double exposed_comm_s = 0;
  double total_comm_s = 0;     // exposed + hidden
  double front_wait_s = 0;     // of exposed_comm_s: before the next forward pass could begin
  double codec_s = 0;          // encoding, within compute_s, and decoding, within exposed_comm_s
  double check_s = 0;          // replica checks
  double evaluate_s = 0;       // held-out accuracy
  bool traffic_known = false;  // false: the collective does not tell
  Traffic traffic;
  std::uint64_t missing_contributions = 0;  // of all-to-all all-reduces: see CollectiveOutcome
  std::uint64_t expected_contributions = 0;
  // Of a tolerant collective: what others' results came too early for.
  std::uint64_t skipped_steps = 0;
  std::uint64_t skipped_images = 0;
  double given_squares = 0;  // see StepCommunication
  double lost_squares = 0;
  LossCounts loss;
  std::uint64_t momentum_bytes = 0;  // of the optimiser's state here
  parallel::AllLayerCounts layers{};
};

struct EpochMetrics {
  double loss = 0;  // mean over the epoch's training examples, each before its own step
  double held_out_loss = 0;
  double accuracy = 0;     // of the held-out examples, 0 to 1
  double train_s = 0;      // of the rank that reports: rank 0's in the results
  std::uint64_t step = 0;  // the epoch's last, counted from the run's first
};

// How the loss went, at most kMaxCurvePoints of them over a run.
struct CurvePoint {
  std::uint64_t step = 0;  // the last of those that the point stands for
  double loss = 0;         // mean over their examples on this rank
  double train_s = 0;      // of this rank, up to then
};
inline constexpr std::uint64_t kMaxCurvePoints = 400;
// How many steps a report times one by one: the first of the run.
inline constexpr std::size_t kMaxStepSeconds = 20'000;

struct TrainReport {
  std::vector<EpochMetrics> epochs;
  std::vector<CurvePoint> curve;
  std::vector<double> step_seconds;  // wall time of each of the first kMaxStepSeconds steps on this rank
  Timeline timeline;                 // of this rank's latest steps
  std::uint64_t steps = 0;
  std::uint64_t images = 0;  // of all steps, all ranks together; see RankTotals::skipped_images
  std::vector<RankTotals> ranks;
  float loss_scale = 1;                    // of LossScaler, after the last step
  std::uint64_t overflowed_steps = 0;      // skipped, because gradients were not finite
  std::optional<bool> replicas_identical;  // nothing: was not checked
  std::optional<bool> buckets_changed;     // by planning them again after the first step; nothing: that was left out
  BucketPlan initial_buckets;              // where they changed
  bool target_reached = false;
  std::size_t prefetch = 0;             // of the loader
  int first_epoch = 0;                  // epochs that a checkpoint had: those above are after them
  std::uint64_t parameters_digest = 0;  // in parameter order, whatever the buckets
  std::string failure;                  // empty: all went well
};

// Of a run with CollectiveKind::kNccl.
struct NcclInfo {
  std::string library;  // the file that was opened
  std::string version;  // as 2.28.9
  std::string device;   // the GPU's name
  bool emulated = false;
};

// Of a run with CollectiveKind::kPs.
struct PsInfo {
  std::string server;  // ADDRESS:PORT
  std::string congestion_control;
};

// Of a run with CollectiveKind::kParaexpress: which plan all-reduces of so many bytes go by.
struct PlannedSize {
  std::uint64_t bytes = 0;
  std::string plan;
};

// What a report says beside the measurements.
struct RunInfo {
  std::string data_source;
  std::string replay = "null";  // replay_json()'s text
  std::string mathematics;      // what computed, for people; empty: a replay did not
  bool emulated = false;        // a GPU that is not there computed: its times mean nothing
  std::string libraries;        // what computed on a GPU: "cublas 13.1, cudnn 9.19"; empty: none did
  NcclInfo nccl;                // with CollectiveKind::kNccl
  PsInfo ps;                    // with CollectiveKind::kPs
  std::vector<PlannedSize> plans;
  std::uint32_t helpers_left = 0;  // at the end, of ParaExpress
  std::string regions;             // its region map, as a file has it
  std::string regions_found;       // what probing said; empty: it did not probe
  std::size_t damaged_files = 0;   // left out
  std::string first_damaged;       // what was wrong with the first
  std::uint64_t checkpoints = 0;   // written
  double checkpoint_s = 0;
  std::size_t train_examples = 0;
  std::size_t held_out_examples = 0;
  std::string plugin_path;  // empty: one rank, no transport
  std::string plugin_name;
  std::string transport;  // what it says carries its bytes; empty: it does not say
  int plugin_version = 0;
  std::string device;
  int channels = 0;
  int profiler_version = 0;  // 0 = none
  int tuner_version = 0;
};

// Fills report.ranks by an exchange among all ranks (bootstrap null: one rank).
Result<void> gather_totals(const RankTotals& mine, proxy::Bootstrap* bootstrap, TrainReport& report);

// {parameters, precision, gradient_bytes, buckets[], ...}: what --describe prints. Bytes are of that precision.
nlohmann::json describe(const Model& model, const BucketPlan& plan);

// {accuracy, loss, images_per_second, exposed_comm_s, front_wait_s, compute_s, bytes_sent, replicas_identical,
// missing_bytes, eligible_bytes, delivered_bytes, compute_device, update (where
// gradients are summed and parameters updated: "host" or "device"), collective, nccl, parameter_server, plan, plans,
// all_reduce, missing_policy, missing_contributions, expected_contributions (the last three null for a ring), lost_norm
// (of what was lost of the ranks' gradients, by the norm of what they gave: null unless the missing policy is
// residual), curve, accuracy_curve, step_seconds, ...}; the losses are null where the plugin does not tell them. `nccl`
// is {library, version, device, emulated} with collective "nccl", otherwise null; with it all_reduce, bytes_*,
// messages_*, send_retries and idle_yields are null, because NCCL tells neither. `parameter_server` is {label, server,
// congestion_control} with collective "ps", otherwise null. `plan` (what was asked for) and `plans` ([{bytes, plan}] of
// the buckets' sizes) are null but with collective "paraexpress"; `plans` also where a codec reduces nothing.
// `regions` ({map: as a file has it, found: what probing said, or null}) is null where neither --regions nor probing
// had a say; so is `helpers` ({given, left}) where there were none. `tolerant` ({terms, skipped_steps}) is null but for
// a tolerant run, where `images` and the loss are of what was computed in time, and the contributions those that were
// given and not in their own step's sums. `buckets` are those of the end; `rebuilt_buckets` is {after_step, changed},
// null where that was left out, and `initial_buckets` those of the first step, null where nothing changed.
// `momentum_bytes` is the most of a rank's. `traffic` is null without TrainConfig::layers, otherwise {moe, dlrm}, each
// {communicator, exchanges (of each rank), bytes_sent (to other ranks, all ranks), exposed_s (mean)}. `replay` is
// replay_json()'s, null where the run computed; with one, losses and accuracy are null. `slow` is {rank: factor}.
// `damaged_files` is {count, first} or null; `checkpoint` {file, written, seconds} or null; `resumed` {file, epochs} or
// null, and with it all that counts or lists steps and epochs begins after those. `precision` is "f32", "bf16" or
// "f16"; `loss_scale` {scaling ("static", "dynamic"), initial, final, interval, skipped_steps} or null. `curve`,
// `accuracy_curve` ([step, training seconds, accuracy] after each epoch), `step_seconds` and `timeline` (the latest
// steps: Timeline) are of the rank that calls. Other seconds are means over ranks, bytes and messages sums; per_rank
// and per_epoch have the rest.
nlohmann::json to_results(const TrainConfig& config, const Model& model, const BucketPlan& plan, const RunInfo& info,
                          const TrainReport& report);

// The same for people, as a table. `results` is what to_results() or describe() made.
std::string summary(const nlohmann::json& results);
std::string description(const nlohmann::json& results);

}  // namespace clustar::bench::trainer
