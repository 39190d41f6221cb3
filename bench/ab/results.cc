#include "bench/ab/results.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "bench/ab/cluster/ranks.h"
#include "bench/trainer/exchange.h"

namespace clustar::bench::ab {
namespace {

using nlohmann::json;

double median_of(const Outcomes& outcomes, Role role, const std::string& key) {
  return perf::median(outcomes.by_round(role, key));
}

// Runs of unequal length (a target reached early) compare per step.
double per_step(const Outcomes& outcomes, Role role, const std::string& key) {
  std::vector<double> values = outcomes.by_round(role, key);
  const std::vector<double> steps = outcomes.by_round(role, "steps");
  for (std::size_t i = 0; i < values.size(); ++i) values[i] /= std::max(1.0, steps[i]);
  return perf::median(values);
}

json run_json(const Run& run, const Plan& plan) {
  json result{{"round", run.round + 1},
              {"arm", to_string(run.role)},
              {"seed", plan.train.seed + static_cast<std::uint64_t>(run.round)},
              {"wall_s", run.wall_s},
              {"switch_packets", run.network.packets},
              {"switch_bytes", run.network.bytes},
              {"switch_drops", run.network.drops}};
  for (const char* key : {"images_per_second",
                          "train_s",
                          "compute_s",
                          "exposed_comm_s",
                          "hidden_comm_s",
                          "steps",
                          "images",
                          "bytes_sent",
                          "messages_sent",
                          "accuracy",
                          "loss",
                          "target_reached",
                          "time_to_target_s",
                          "replicas_identical",
                          "parameters_digest",
                          "missing_bytes",
                          "eligible_bytes",
                          "delivered_bytes",
                          "identified_messages",
                          "tolerant_messages",
                          "per_epoch",
                          "curve",
                          "timeline",
                          "transport",
                          "collective",
                          "parameter_server",
                          "plan",
                          "plans",
                          "helpers"}) {
    result[key] = run.train.value(key, json(nullptr));
  }
  return result;
}

json arm_json(const Arm& arm, Role role, const Outcomes& outcomes) {
  json result = arm_facts(arm, outcomes.kernel_congestion_control);
  json transport = nullptr;
  std::uint64_t drops = 0;
  for (const Run& run : outcomes.runs) {
    if (run.role != role) continue;
    transport = run.train["transport"];
    drops += run.network.drops;
  }
  result["transport"] = transport;
  result["images_per_second"] = median_of(outcomes, role, "images_per_second");
  result["bytes_sent"] = median_of(outcomes, role, "bytes_sent");
  result["messages_sent"] = median_of(outcomes, role, "messages_sent");
  result["exposed_comm_ms_per_step"] = 1000 * per_step(outcomes, role, "exposed_comm_s");
  result["hidden_comm_ms_per_step"] = 1000 * per_step(outcomes, role, "hidden_comm_s");
  result["compute_ms_per_step"] = 1000 * per_step(outcomes, role, "compute_s");
  result["switch_drops_total"] = drops;
  return result;
}

// How far the arms' training diverged: 0 and equal when both did the same arithmetic.
struct Divergence {
  double max_loss_difference = 0;
  bool parameters_equal = true;
};

const Run* find(const Outcomes& outcomes, Role role, int round) {
  for (const Run& run : outcomes.runs) {
    if (run.role == role && run.round == round) return &run;
  }
  return nullptr;
}

Divergence divergence(const Outcomes& outcomes, int rounds) {
  Divergence result;
  for (int round = 0; round < rounds; ++round) {
    const Run* a = find(outcomes, Role::kBaseline, round);
    const Run* b = find(outcomes, Role::kCandidate, round);
    if (a == nullptr || b == nullptr) continue;
    const json& left = a->train["curve"]["loss"];
    const json& right = b->train["curve"]["loss"];
    for (std::size_t i = 0; i < std::min(left.size(), right.size()); ++i) {
      if (!left[i].is_number() || !right[i].is_number()) continue;
      const double difference = std::abs(left[i].get<double>() - right[i].get<double>());
      result.max_loss_difference = std::max(result.max_loss_difference, difference);
    }
    result.parameters_equal &= a->train["parameters_digest"] == b->train["parameters_digest"];
  }
  return result;
}

// By round, where both arms reached the target.
json time_to_accuracy(const Plan& plan, const Outcomes& outcomes) {
  if (!plan.train.target_accuracy) return nullptr;
  std::vector<double> a;
  std::vector<double> b;
  for (int round = 0; round < plan.rounds; ++round) {
    const json& left = find(outcomes, Role::kBaseline, round)->train["time_to_target_s"];
    const json& right = find(outcomes, Role::kCandidate, round)->train["time_to_target_s"];
    if (!left.is_number() || !right.is_number()) continue;
    a.push_back(left.get<double>());
    b.push_back(right.get<double>());
  }
  json result{{"target_accuracy", *plan.train.target_accuracy}, {"rounds_reached", a.size()}, {"ratio", nullptr}};
  if (a.empty()) return result;
  const perf::RatioEstimate ratio = perf::paired_ratio(a, b, 1);
  result.update({{"seconds_a", perf::median(a)},
                 {"seconds_b", perf::median(b)},
                 {"ratio", ratio.ratio},
                 {"ratio_low", ratio.low},
                 {"ratio_high", ratio.high}});
  return result;
}

}  // namespace

json cluster_json(const cluster::Spec& spec, const json& hosts) {
  const std::size_t places = cluster::count_places(hosts);
  return {{"kind", "cluster"},
          {"text", fmt::format("{} host{}, by {}", places, places == 1 ? "" : "s",
                               spec.version.empty() ? cluster::to_string(spec.starter) : spec.version)},
          {"launcher", cluster::to_string(spec.starter)},
          {"launcher_version", spec.version.empty() ? json(nullptr) : json(spec.version)},
          {"launcher_arguments", spec.more},
          {"hosts", hosts}};
}

std::string one_place_warning(const json& place) {
  const json hosts = place.value("hosts", json::array());
  if (hosts.size() < 2 || cluster::count_places(hosts) > 1) return "";
  return fmt::format("all ranks ran on one host ({}): what they sent crossed no network",
                     hosts.at(0).value("host", std::string("?")));
}

namespace {

json place_json(const Plan& plan, const json& train, const std::optional<fabric::PacketProof>& proof) {
  if (plan.cluster) {
    json place = cluster_json(*plan.cluster, train.value("hosts", json::array()));
    place["ranks"] = plan.ranks;
    place["text"] = fmt::format("{} ranks on {}", plan.ranks, place["text"].get<std::string>());
    return place;
  }
  json result{{"kind", plan.fabric ? "fabric" : "loopback"}, {"ranks", plan.ranks}};
  if (!plan.fabric) {
    result["text"] = fmt::format("{} ranks on loopback (no link rate: as fast as the CPU)", plan.ranks);
    return result;
  }
  result.update({{"text", fabric::describe(*plan.fabric)},
                 {"rate_bps", plan.fabric->rate_bps},
                 {"mtu", plan.fabric->mtu},
                 {"buffer_bytes", plan.fabric->buffer_bytes}});
  if (const int more = plan.fabric->hosts - plan.ranks; more > 0) {
    result["text"] = fmt::format("{}; {} of the hosts for helpers", result["text"].get<std::string>(), more);
  }
  if (proof) {
    result.update({{"largest_frame_bytes", proof->largest_bytes},
                   {"oversized_packets", proof->oversized_packets},
                   {"per_packet", proof->per_packet()}});
  }
  return result;
}

json warnings(const Plan& plan, const Verdict& verdict, const json& arms, const Divergence& diverged,
              const json& time_to_target, const std::optional<fabric::PacketProof>& proof) {
  json all = json::array();
  if (plan.rounds < kRoundsForVerdict) {
    all.push_back(fmt::format("{} of at least {} rounds: the interval is no basis for a verdict", plan.rounds,
                              kRoundsForVerdict));
  }
  if (verdict.outcome != Outcome::kAboveCeiling && verdict.ratio.ratio > std::max(1.0, verdict.ceiling.ratio)) {
    all.push_back("the ratio is above the ceiling, which these rounds cannot tell from noise");
  }
  for (const json& arm : arms) {
    if (arm["congestion_control_explicit"].get<bool>()) continue;
    all.push_back(congestion_warning(arm["name"], arm["congestion_control"], arm["transport"]));
  }
  if (!diverged.parameters_equal && !plan.train.compute.replays()) {
    all.push_back(fmt::format("the arms did not train the same: parameters differ at the end, losses by up to {:.3g}",
                              diverged.max_loss_difference));
  }
  if (time_to_target.is_object() && time_to_target["rounds_reached"] != plan.rounds) {
    all.push_back(fmt::format("only {} of {} rounds reached the target accuracy in both arms; more --epochs may help",
                              time_to_target["rounds_reached"].get<int>(), plan.rounds));
  }
  if (proof && !proof->per_packet()) {
    all.push_back(proof->complete() ? "the fabric's queues held super-packets, which no real switch would see"
                                    : "the fabric's proof that its queues hold packets was not complete");
  }
  return all;
}

}  // namespace

std::string equality_text(const json& result) {
  const double difference = result.at("max_loss_difference");
  return fmt::format("Replicas were {} in every run. The losses of A and B {}, their final parameters {}.",
                     result.at("replicas_identical").get<bool>() ? "identical" : "NOT identical",
                     difference == 0 ? "are equal" : fmt::format("differ by up to {:.3g}", difference),
                     result.at("parameters_equal").get<bool>() ? "are equal bit for bit" : "differ");
}

json to_json(const Plan& planned, const Outcomes& outcomes, const Verdict& verdict,
             const std::optional<fabric::PacketProof>& proof) {
  Plan plan = planned;
  plan.rounds = static_cast<int>(outcomes.runs.size() / order_of_round(0).size());
  const json arms = json::array(
      {arm_json(plan.baseline, Role::kBaseline, outcomes), arm_json(plan.candidate, Role::kCandidate, outcomes)});
  const Divergence diverged = divergence(outcomes, plan.rounds);
  const json time_to_target = time_to_accuracy(plan, outcomes);
  const json& train = outcomes.runs.front().train;
  json runs = json::array();
  for (const Run& run : outcomes.runs) runs.push_back(run_json(run, plan));
  const bool identical = std::all_of(outcomes.runs.begin(), outcomes.runs.end(), [](const Run& run) {
    return run.role == Role::kCeiling || run.train["replicas_identical"] == true;
  });
  int short_of_helpers = 0;
  for (const Run& run : outcomes.runs) {
    const json helpers = run.train.value("helpers", json(nullptr));
    short_of_helpers += helpers.is_object() && helpers["left"] < helpers["given"] ? 1 : 0;
  }
  const json place = place_json(plan, train, proof);
  json all_warnings = warnings(plan, verdict, arms, diverged, time_to_target, proof);
  if (const std::string warning = one_place_warning(place); !warning.empty()) all_warnings.push_back(warning);
  if (short_of_helpers > 0) {
    all_warnings.push_back(fmt::format("{} run{} ended with fewer helpers than given: the ranks went on without them",
                                       short_of_helpers, short_of_helpers == 1 ? "" : "s"));
  }
  if (plan.rounds < planned.rounds) {
    all_warnings.insert(all_warnings.begin(),
                        fmt::format("{} of {} rounds were done{}{}", plan.rounds, planned.rounds,
                                    outcomes.ended_by.empty() ? "" : "; then: ", outcomes.ended_by));
  }
  return {{"model", plan.train.model},
          {"baseline", plan.baseline.name},
          {"candidate", plan.candidate.name},
          {"images_per_second_a", arms[0]["images_per_second"]},
          {"images_per_second_b", arms[1]["images_per_second"]},
          {"ratio", verdict.ratio.ratio},
          {"ratio_low", verdict.ratio.low},
          {"ratio_high", verdict.ratio.high},
          {"time_to_accuracy_ratio", time_to_target.is_object() ? time_to_target["ratio"] : json(nullptr)},
          {"ceiling_ratio", verdict.ceiling.ratio},
          {"ceiling_ratio_low", verdict.ceiling.low},
          {"ceiling_ratio_high", verdict.ceiling.high},
          {"images_per_second_ceiling", median_of(outcomes, Role::kCeiling, "images_per_second")},
          {"verdict", to_string(verdict.outcome)},
          {"verdict_text", verdict.text},
          {"warnings", std::move(all_warnings)},
          {"rounds", plan.rounds},
          {"planned_rounds", planned.rounds},
          {"ended_by", outcomes.ended_by.empty() ? json(nullptr) : json(outcomes.ended_by)},
          {"seconds", outcomes.seconds},
          {"place", place},
          {"arms", arms},
          {"time_to_accuracy", time_to_target},
          {"max_loss_difference", diverged.max_loss_difference},
          {"parameters_equal", diverged.parameters_equal},
          {"replicas_identical", identical},
          {"inherited_settings", inherited_settings()},
          {"config", train["config"]},
          {"shape", train["shape"]},
          {"data_source", train["data_source"]},
          {"damaged_files", train.value("damaged_files", json(nullptr))},
          {"gradient_bytes", train["gradient_bytes"]},
          {"gemm", train["gemm"]},
          {"replay", train.value("replay", json(nullptr))},
          {"runs", runs}};
}

json arm_facts(const Arm& arm, const std::string& kernels) {
  const Congestion congestion = congestion_of(arm, inherited_settings(), kernels);
  const std::string sums = arm.by_ps()            ? fmt::format("none: the {}", trainer::kPsLabel)
                           : arm.by_paraexpress() ? "none: by ParaExpress"
                                                  : arm.plugin;
  return {{"name", arm.name},
          {"plugin", sums},
          {"options", arm.options},
          {"settings", arm.settings},
          {"congestion_control", congestion.name},
          {"congestion_control_explicit", congestion.explicitly}};
}

json spread_json(const std::vector<double>& values) {
  if (values.empty()) return nullptr;
  const perf::Spread spread = perf::spread(values);
  return {{"median", spread.median}, {"min", spread.min}, {"max", spread.max}};
}

}  // namespace clustar::bench::ab
