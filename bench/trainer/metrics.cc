#include "bench/trainer/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "bench/trainer/compute/residence.h"
#include "bench/trainer/loss_report.h"
#include "bench/trainer/precision/loss_scaler.h"
#include "bench/trainer/tolerance.h"

namespace clustar::bench::trainer {
namespace {

using nlohmann::json;

const char* to_string(CheckEqual check) {
  switch (check) {
    case CheckEqual::kEvery: return "every";
    case CheckEqual::kEpoch: return "epoch";
    case CheckEqual::kOff: return "off";
  }
  return "?";
}

double mean(const std::vector<RankTotals>& ranks, double RankTotals::*member) {
  double sum = 0;
  for (const RankTotals& rank : ranks) sum += rank.*member;
  return ranks.empty() ? 0 : sum / static_cast<double>(ranks.size());
}

std::uint64_t sum(const std::vector<RankTotals>& ranks, std::uint64_t RankTotals::*member) {
  std::uint64_t total = 0;
  for (const RankTotals& rank : ranks) total += rank.*member;
  return total;
}

double hidden(const RankTotals& rank) { return std::max(0.0, rank.total_comm_s - rank.exposed_comm_s); }

// Per second, or 0 before anything was timed.
double rate(std::uint64_t count, double seconds) { return seconds > 0 ? static_cast<double>(count) / seconds : 0; }

json traffic_json(bool known, const Traffic& traffic) {
  const auto number = [&](std::uint64_t value) { return known ? json(value) : json(nullptr); };
  return {{"bytes_sent", number(traffic.bytes_sent)},       {"bytes_received", number(traffic.bytes_received)},
          {"messages_sent", number(traffic.messages_sent)}, {"messages_received", number(traffic.messages_received)},
          {"send_retries", number(traffic.send_retries)},   {"idle_yields", number(traffic.idle_yields)}};
}

// The totals' keys: how often a plugin or a thread waited says something of one rank only.
json traffic_of_all(const std::vector<RankTotals>& ranks) {
  Traffic sum;
  bool known = true;
  for (const RankTotals& rank : ranks) {
    known = known && rank.traffic_known;
    sum += rank.traffic;
  }
  json all = traffic_json(known, sum);
  for (const char* of_one_rank : {"send_retries", "idle_yields"}) all.erase(of_one_rank);
  return all;
}

json lost_norm(const std::vector<RankTotals>& ranks) {
  double given = 0;
  double lost = 0;
  for (const RankTotals& rank : ranks) {
    given += rank.given_squares;
    lost += rank.lost_squares;
  }
  return given > 0 ? json(std::sqrt(lost / given)) : json(nullptr);
}

json per_rank(const std::vector<RankTotals>& ranks) {
  json all = json::array();
  for (const RankTotals& rank : ranks) {
    all.push_back({{"train_s", rank.train_s},
                   {"compute_s", rank.compute_s},
                   {"exposed_comm_s", rank.exposed_comm_s},
                   {"hidden_comm_s", hidden(rank)},
                   {"front_wait_s", rank.front_wait_s},
                   {"load_s", rank.load_s},
                   {"codec_s", rank.codec_s},
                   {"check_s", rank.check_s},
                   {"evaluate_s", rank.evaluate_s},
                   {"missing_contributions", rank.missing_contributions},
                   {"expected_contributions", rank.expected_contributions},
                   {"skipped_steps", rank.skipped_steps},
                   {"momentum_bytes", rank.momentum_bytes}});
    all.back().update(traffic_json(rank.traffic_known, rank.traffic));
    all.back().update(loss_json(rank.loss));
  }
  return all;
}

json per_epoch(const std::vector<EpochMetrics>& epochs) {
  json result{{"loss", json::array()},
              {"held_out_loss", json::array()},
              {"accuracy", json::array()},
              {"train_s", json::array()}};
  for (const EpochMetrics& epoch : epochs) {
    result["loss"].push_back(epoch.loss);
    result["held_out_loss"].push_back(epoch.held_out_loss);
    result["accuracy"].push_back(epoch.accuracy);
    result["train_s"].push_back(epoch.train_s);
  }
  return result;
}

json curve_json(const std::vector<CurvePoint>& curve) {
  json result{{"step", json::array()}, {"loss", json::array()}, {"train_s", json::array()}};
  for (const CurvePoint& point : curve) {
    result["step"].push_back(point.step);
    result["loss"].push_back(point.loss);
    result["train_s"].push_back(point.train_s);
  }
  return result;
}

// [step, training seconds until then, held-out accuracy] after each epoch.
json accuracy_curve(const std::vector<EpochMetrics>& epochs) {
  json result = json::array();
  double train_s = 0;
  for (const EpochMetrics& epoch : epochs) {
    train_s += epoch.train_s;
    result.push_back({epoch.step, train_s, epoch.accuracy});
  }
  return result;
}

// Training seconds until the target was reached; null without a target or when it was missed.
json time_to_target(const TrainReport& report) {
  if (!report.target_reached) return nullptr;
  double total = 0;
  for (const EpochMetrics& epoch : report.epochs) total += epoch.train_s;
  return total;
}

json codec_json(const CodecOptions& options) {
  if (options.codec == Codec::kNone) return nullptr;
  json codec{{"name", to_string(options.codec)}, {"path", to_string(options.path)}};
  if (options.codec == Codec::kTopK) codec["topk_fraction"] = options.topk_fraction;
  return codec;
}

json config_json(const TrainConfig& config) {
  return {{"epochs", config.epochs},
          {"batch", config.batch},
          {"rate", config.rate},
          {"momentum", config.momentum},
          {"weight_decay", config.weight_decay},
          {"seed", config.seed},
          {"first_bucket_bytes", config.first_bucket_bytes},
          {"bucket_bytes", config.bucket_bytes},
          {"initial_buckets", config.initial_buckets == InitialBuckets::kOne ? "one" : "caps"},
          {"rebuild_buckets", config.rebuild_buckets},
          {"accumulate", config.accumulate},
          {"optimizer_sharding", to_string(config.sharding)},
          {"traffic", parallel::to_text(config.layers)},
          {"check_equal", to_string(config.check_equal)},
          {"no_communication", config.no_communication},
          {"overlap_forward", config.overlap_forward},
          {"front_buckets", config.front_buckets},
          {"codec", codec_json(config.codec)},
          {"target_accuracy", config.target_accuracy ? json(*config.target_accuracy) : json(nullptr)}};
}

json loss_scale_json(const LossScaleOptions& options, const TrainReport& report) {
  if (options.scaling == LossScaling::kNone) return nullptr;
  const bool dynamic = options.scaling == LossScaling::kDynamic;
  return {{"scaling", dynamic ? "dynamic" : "static"},
          {"initial", options.scale},
          {"final", report.loss_scale},
          {"interval", dynamic ? json(options.interval) : json(nullptr)},
          {"skipped_steps", report.overflowed_steps}};
}

json device_json(const TrainConfig& config, const RunInfo& info) {
  if (info.mathematics.empty()) return nullptr;
  json device{{"kind", to_string(config.compute.device)}, {"emulated", info.emulated}};
  if (!info.libraries.empty()) device["math"] = info.libraries;
  return device;
}

json damaged_json(const RunInfo& info) {
  if (info.damaged_files == 0) return nullptr;
  return {{"count", info.damaged_files}, {"first", info.first_damaged}};
}

json checkpoint_json(const CheckpointOptions& options, const RunInfo& info) {
  if (options.file.empty()) return nullptr;
  return {{"file", options.file}, {"written", info.checkpoints}, {"seconds", info.checkpoint_s}};
}

json resumed_json(const CheckpointOptions& options, const TrainReport& report) {
  if (options.resume.empty()) return nullptr;
  return {{"file", options.resume}, {"epochs", report.first_epoch}};
}

json nccl_json(const TrainConfig& config, const NcclInfo& info) {
  if (config.collective != CollectiveKind::kNccl || info.library.empty()) return nullptr;
  return {{"library", info.library}, {"version", info.version}, {"device", info.device}, {"emulated", info.emulated}};
}

json ps_json(const TrainConfig& config, const PsInfo& info) {
  if (config.collective != CollectiveKind::kPs) return nullptr;
  const auto text = [](const std::string& value) { return value.empty() ? json(nullptr) : json(value); };
  return {{"label", kPsLabel}, {"server", text(info.server)}, {"congestion_control", text(info.congestion_control)}};
}

json regions_json(const RunInfo& info) {
  if (info.regions.empty()) return nullptr;
  return {{"map", info.regions}, {"found", info.regions_found.empty() ? json(nullptr) : json(info.regions_found)}};
}

json plans_json(const RunInfo& info) {
  if (info.plans.empty()) return nullptr;
  json plans = json::array();
  for (const PlannedSize& planned : info.plans) plans.push_back({{"bytes", planned.bytes}, {"plan", planned.plan}});
  return plans;
}

json transport_json(const TrainConfig& config, const RunInfo& info) {
  if (!opens_plugin(config.collective) && !info.transport.empty()) {
    return {{"plugin", nullptr},        {"name", to_string(config.collective)},
            {"version", nullptr},       {"device", info.device},
            {"channels", nullptr},      {"profiler_version", nullptr},
            {"tuner_version", nullptr}, {"transport", info.transport}};
  }
  if (info.plugin_path.empty()) return nullptr;
  if (!info.nccl.library.empty()) {
    // Which versions of its tables and which device NCCL chose is in NCCL's log (NCCL_DEBUG=INFO).
    return {{"plugin", info.plugin_path}, {"name", info.plugin_name},  {"version", nullptr},
            {"device", nullptr},          {"channels", info.channels}, {"profiler_version", nullptr},
            {"tuner_version", nullptr},   {"transport", nullptr}};
  }
  return {{"plugin", info.plugin_path},
          {"name", info.plugin_name},
          {"version", info.plugin_version},
          {"device", info.device},
          {"channels", info.channels},
          {"profiler_version", info.profiler_version},
          {"tuner_version", info.tuner_version},
          {"transport", info.transport.empty() ? json(nullptr) : json(info.transport)}};
}

json tolerant_json(const TrainConfig& config, const std::vector<RankTotals>& ranks) {
  if (!config.tolerance) return nullptr;
  return {{"terms", to_text(*config.tolerance, static_cast<int>(ranks.size()))},
          {"skipped_steps", sum(ranks, &RankTotals::skipped_steps)}};
}

json slow_json(const std::map<int, double>& slow) {
  json all = json::object();
  for (const auto& [rank, factor] : slow) all[std::to_string(rank)] = factor;
  return all;
}

// Goodput: what no rank computed, nobody trained on.
std::uint64_t images_of(const TrainReport& report) {
  return report.images - sum(report.ranks, &RankTotals::skipped_images);
}

void add_totals(const TrainReport& report, json& results) {
  const std::vector<RankTotals>& ranks = report.ranks;
  const double train_s = mean(ranks, &RankTotals::train_s);
  const double exposed_s = mean(ranks, &RankTotals::exposed_comm_s);
  double hidden_s = 0;
  for (const RankTotals& rank : ranks) hidden_s += hidden(rank) / static_cast<double>(ranks.size());
  results.update({{"images_per_second", rate(images_of(report), train_s)},
                  {"train_s", train_s},
                  {"compute_s", mean(ranks, &RankTotals::compute_s)},
                  {"exposed_comm_s", exposed_s},
                  {"hidden_comm_s", hidden_s},
                  {"front_wait_s", mean(ranks, &RankTotals::front_wait_s)},
                  {"load_s", mean(ranks, &RankTotals::load_s)},
                  {"codec_s", mean(ranks, &RankTotals::codec_s)},
                  {"check_s", mean(ranks, &RankTotals::check_s)},
                  {"evaluate_s", mean(ranks, &RankTotals::evaluate_s)},
                  {"per_rank", per_rank(ranks)}});
  results.update(traffic_of_all(ranks));
}

}  // namespace

Result<void> gather_totals(const RankTotals& mine, proxy::Bootstrap* bootstrap, TrainReport& report) {
  report.ranks.assign(1, mine);
  if (bootstrap == nullptr) return {};
  const auto gathered = bootstrap->all_gather(std::as_bytes(std::span(&mine, 1)));
  if (!gathered) return tl::unexpected(gathered.error());
  report.ranks.resize(static_cast<std::size_t>(bootstrap->size()));
  std::memcpy(report.ranks.data(), gathered->data(), report.ranks.size() * sizeof(RankTotals));
  return {};
}

namespace {

std::size_t multiply_adds(const Model& model) {
  std::size_t sum = 0;
  for (const graph::Node& node : model.graph.nodes()) sum += model.graph.multiply_adds(node);
  return sum;
}

json layers_json(const Model& model) {
  json layers = json::array();
  for (const graph::Node& node : model.graph.nodes()) {
    std::size_t parameters = 0;
    for (const graph::TensorSpec& tensor : model.graph.tensors_of(node)) parameters += tensor.elements;
    layers.push_back({{"name", node.name},
                      {"operation", graph::label(node.op)},
                      {"shape", {node.shape.rows, node.shape.columns, node.shape.channels}},
                      {"parameters", parameters},
                      {"multiply_adds", model.graph.multiply_adds(node)}});
  }
  return layers;
}

json buckets_json(const Model& model, const BucketPlan& plan) {
  const std::vector<graph::TensorSpec> tensors = model.tensors();
  json buckets = json::array();
  for (const Bucket& bucket : plan.buckets) {
    json names = json::array();
    for (const std::size_t tensor : bucket.tensors) names.push_back(tensors[tensor].name);
    buckets.push_back({{"bytes", plan.bytes(bucket)}, {"elements", bucket.elements}, {"tensors", names}});
  }
  return buckets;
}

json traffic_of_layers(const TrainConfig& config, const std::vector<RankTotals>& ranks) {
  json all = json::object();
  const auto layers = parallel::layer_exchanges(config.layers, 0, static_cast<int>(ranks.size()));
  for (std::size_t i = 0; i < layers.size(); ++i) {
    std::uint64_t bytes = 0;
    double exposed_s = 0;
    for (const RankTotals& rank : ranks) {
      bytes += rank.layers[i].bytes_sent;
      exposed_s += rank.layers[i].exposed_s / static_cast<double>(ranks.size());
    }
    all[layers[i].name] = {{"communicator", layers[i].comm_name},
                           {"exchanges", ranks[0].layers[i].exchanges},
                           {"bytes_sent", bytes},
                           {"exposed_s", exposed_s}};
  }
  return all.empty() ? json(nullptr) : all;
}

void add_parallelism(const TrainConfig& config, const Model& model, const TrainReport& report, json& results) {
  results["rebuilt_buckets"] =
      report.buckets_changed ? json{{"after_step", 1}, {"changed", *report.buckets_changed}} : json(nullptr);
  results["initial_buckets"] =
      report.buckets_changed.value_or(false) ? buckets_json(model, report.initial_buckets) : json(nullptr);
  std::uint64_t most = 0;
  for (const RankTotals& rank : report.ranks) most = std::max(most, rank.momentum_bytes);
  results["momentum_bytes"] = most;
  results["traffic"] = traffic_of_layers(config, report.ranks);
}

}  // namespace

json describe(const Model& model, const BucketPlan& plan) {
  return {{"model", model.name},
          {"shape", model.shape},
          {"parameters", plan.parameters()},
          {"precision", to_string(plan.caps.precision)},
          {"gradient_bytes", plan.parameters() * element_bytes(plan.caps.precision)},
          {"layers", layers_json(model)},
          {"multiply_adds", multiply_adds(model)},
          {"buckets", buckets_json(model, plan)}};
}

json to_results(const TrainConfig& config, const Model& model, const BucketPlan& plan, const RunInfo& info,
                const TrainReport& report) {
  json results = describe(model, plan);
  results["ranks"] = report.ranks.size();
  results["config"] = config_json(config);
  results["loss_scale"] = loss_scale_json(config.loss_scale, report);
  results["data_source"] = info.data_source;
  results["train_examples"] = info.train_examples;
  results["held_out_examples"] = info.held_out_examples;
  results["damaged_files"] = damaged_json(info);
  results["checkpoint"] = checkpoint_json(config.checkpoint, info);
  results["resumed"] = resumed_json(config.checkpoint, report);
  results["prefetch"] = report.prefetch;
  results["replay"] = json::parse(info.replay);
  results["gemm"] = results["replay"].is_null() ? json(info.mathematics) : json(nullptr);
  results["compute_device"] = device_json(config, info);
  results["update"] = stays_on_device(config, static_cast<int>(report.ranks.size())) ? "device" : "host";
  results["transport"] = transport_json(config, info);
  results["inject_loss"] = config.inject_loss;
  results["inject_faults"] = config.inject_faults.empty() ? json(nullptr) : json(config.inject_faults);
  results["steps"] = report.steps;
  results["images"] = images_of(report);
  results["accuracy"] = report.epochs.empty() ? json(nullptr) : json(report.epochs.back().accuracy);
  results["loss"] = report.epochs.empty() ? json(nullptr) : json(report.epochs.back().loss);
  results["held_out_loss"] = report.epochs.empty() ? json(nullptr) : json(report.epochs.back().held_out_loss);
  results["target_reached"] = config.target_accuracy ? json(report.target_reached) : json(nullptr);
  results["time_to_target_s"] = time_to_target(report);
  results["replicas_identical"] = report.replicas_identical ? json(*report.replicas_identical) : json(nullptr);
  results["parameters_digest"] = fmt::format("{:016x}", report.parameters_digest);
  const bool exchanges = config.exchange.all_reduce == AllReduce::kAllToAll;
  const auto contributions = [&](std::uint64_t RankTotals::*member) {
    return exchanges || config.tolerance ? json(sum(report.ranks, member)) : json(nullptr);
  };
  results["tolerant"] = tolerant_json(config, report.ranks);
  results["slow"] = slow_json(config.slow);
  const bool by_proxy = config.collective == CollectiveKind::kProxy;
  results["collective"] = to_string(config.collective);
  results["nccl"] = nccl_json(config, info.nccl);
  results["parameter_server"] = ps_json(config, info.ps);
  const bool by_plans = config.collective == CollectiveKind::kParaexpress;
  results["plan"] = by_plans ? json(to_string(config.paraexpress.plan)) : json(nullptr);
  results["plans"] = plans_json(info);
  results["regions"] = regions_json(info);
  results["helpers"] = by_plans && config.paraexpress.helpers > 0
                           ? json{{"given", config.paraexpress.helpers}, {"left", info.helpers_left}}
                           : json(nullptr);
  // NCCL chooses between algorithms of its own, unless all-reduces are exchanges.
  results["all_reduce"] = by_proxy || (exchanges && config.collective == CollectiveKind::kNccl)
                              ? json(to_string(config.exchange.all_reduce))
                              : json(nullptr);
  results["missing_policy"] = exchanges ? json(to_string(config.exchange.missing)) : json(nullptr);
  results["missing_contributions"] = contributions(&RankTotals::missing_contributions);
  results["expected_contributions"] = contributions(&RankTotals::expected_contributions);
  results["lost_norm"] = exchanges && config.exchange.missing == proxy::Missing::kResidual && by_proxy
                             ? lost_norm(report.ranks)
                             : json(nullptr);
  results["loss_bound"] = config.loss_bound_ppm / 1e6;
  results.update(loss_json(report.ranks));
  results["failure"] = report.failure.empty() ? json(nullptr) : json(report.failure);
  results["per_epoch"] = per_epoch(report.epochs);
  results["curve"] = curve_json(report.curve);
  results["accuracy_curve"] = accuracy_curve(report.epochs);
  results["step_seconds"] = report.step_seconds;
  results["timeline"] = report.timeline.to_json();
  add_totals(report, results);
  add_parallelism(config, model, report, results);
  if (!opens_plugin(config.collective)) {  // neither counts them
    for (json& rank : results["per_rank"]) rank["send_retries"] = rank["idle_yields"] = nullptr;
  }
  return results;
}

}  // namespace clustar::bench::trainer
