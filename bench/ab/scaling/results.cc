#include "bench/ab/scaling/results.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "bench/ab/results.h"
#include "bench/ab/verdict.h"
#include "bench/perf/statistics.h"

namespace clustar::bench::ab::scaling {
namespace {

using nlohmann::json;

constexpr double kFewSteps = 10;
// Below it, what limits is the machine, and not only a little.
constexpr double kGoodCeiling = 0.95;

std::vector<double> per_step_ms(const ScalingOutcomes& outcomes, const Slot& slot, const char* key) {
  std::vector<double> values = outcomes.by_round(slot, key);
  const std::vector<double> steps = outcomes.by_round(slot, "steps");
  for (std::size_t i = 0; i < values.size(); ++i) values[i] *= 1000 / std::max(1.0, steps[i]);
  return values;
}

// A replay has none, and without communication it means nothing, but of one rank.
json learned(const ScalingOutcomes& outcomes, const Slot& slot, const char* key) {
  if (slot.role == Role::kCeiling && slot.ranks > 1) return nullptr;
  std::vector<double> values;
  for (const ScalingRun& one : outcomes.runs) {
    if (!(Slot{one.ranks, one.run.role} == slot)) continue;
    const json value = one.run.train.value(key, json(nullptr));
    if (!value.is_number()) return nullptr;
    values.push_back(value.get<double>());
  }
  return perf::median(values);
}

json point(const ScalingPlan& plan, const ScalingOutcomes& outcomes, const Slot& slot) {
  const Plan at = plan_at(plan, slot.ranks);
  const std::vector<double> alone = outcomes.by_round({1, Role::kCeiling}, "images_per_second");
  const std::vector<double> rates = outcomes.by_round(slot, "images_per_second");
  std::vector<double> efficiency;
  for (std::size_t i = 0; i < rates.size(); ++i) efficiency.push_back(rates[i] / (slot.ranks * alone[i]));
  return {{"ranks", slot.ranks},
          {"arm", slot.ranks == 1 ? "one rank" : ab::to_string(slot.role)},
          {"batch", at.train.batch},
          {"learning_rate", at.train.rate},
          {"images_per_second", spread_json(rates)},
          {"efficiency", spread_json(efficiency)},
          {"linear_images_per_second", slot.ranks * perf::median(alone)},
          {"compute_ms_per_step", perf::median(per_step_ms(outcomes, slot, "compute_s"))},
          {"exposed_comm_ms_per_step", perf::median(per_step_ms(outcomes, slot, "exposed_comm_s"))},
          {"steps", perf::median(outcomes.by_round(slot, "steps"))},
          {"loss", learned(outcomes, slot, "loss")},
          {"accuracy", learned(outcomes, slot, "accuracy")}};
}

json ratios(const ScalingPlan& plan, const ScalingOutcomes& outcomes) {
  json all = json::array();
  for (const int ranks : plan.ranks) {
    if (ranks == 1) continue;
    const perf::RatioEstimate ratio =
        perf::paired_ratio(outcomes.by_round({ranks, Role::kCandidate}, "images_per_second"),
                           outcomes.by_round({ranks, Role::kBaseline}, "images_per_second"), 1);
    all.push_back({{"ranks", ranks}, {"ratio", ratio.ratio}, {"low", ratio.low}, {"high", ratio.high}});
  }
  return all;
}

// Hosts are those of the last run with the most ranks.
json hosts_of(const ScalingPlan& plan, const ScalingOutcomes& outcomes) {
  json hosts = json::array();
  for (const ScalingRun& one : outcomes.runs) {
    if (one.ranks == plan.ranks.back()) hosts = one.run.train.value("hosts", json::array());
  }
  return hosts;
}

json place_json(const ScalingPlan& plan, const ScalingOutcomes& outcomes,
                const std::optional<fabric::PacketProof>& proof) {
  if (plan.base.cluster) return cluster_json(*plan.base.cluster, hosts_of(plan, outcomes));
  if (!plan.base.fabric) return {{"kind", "loopback"}, {"text", "loopback (no link rate: as fast as the CPU)"}};
  json place{{"kind", "fabric"},
             {"text", fabric::describe(*plan.base.fabric)},
             {"rate_bps", plan.base.fabric->rate_bps},
             {"mtu", plan.base.fabric->mtu},
             {"buffer_bytes", plan.base.fabric->buffer_bytes}};
  if (proof) place["per_packet"] = proof->per_packet();
  return place;
}

json run_json(const ScalingRun& one) {
  json result{{"ranks", one.ranks},
              {"round", one.run.round + 1},
              {"arm", one.ranks == 1 ? "one rank" : ab::to_string(one.run.role)},
              {"wall_s", one.run.wall_s},
              {"switch_bytes", one.run.network.bytes},
              {"switch_drops", one.run.network.drops}};
  for (const char* key : {"images_per_second", "train_s", "compute_s", "exposed_comm_s", "hidden_comm_s", "steps",
                          "images", "bytes_sent", "messages_sent", "accuracy", "loss", "replicas_identical"}) {
    result[key] = one.run.train.value(key, json(nullptr));
  }
  return result;
}

void warn_of_congestion(const ScalingPlan& plan, const ScalingOutcomes& outcomes, json& all) {
  const std::string& kernels = outcomes.kernel_congestion_control;
  for (const auto& [role, arm] :
       {std::pair(Role::kBaseline, &plan.base.baseline), std::pair(Role::kCandidate, &plan.base.candidate)}) {
    if (congestion_of(*arm, inherited_settings(), kernels).explicitly) continue;
    json transport = nullptr;
    for (const ScalingRun& one : outcomes.runs) {
      if (one.run.role == role && one.ranks > 1) transport = one.run.train.value("transport", json(nullptr));
    }
    all.push_back(congestion_warning(arm->name, kernels, transport));
  }
}

void warn_of_limits(const json& points, json& all) {
  double fewest = kFewSteps;
  for (const json& one : points) {
    fewest = std::min(fewest, one["steps"].get<double>());
    const double efficiency = one["efficiency"]["median"];
    if (one["arm"] != ab::to_string(Role::kCeiling) || efficiency >= kGoodCeiling) continue;
    all.push_back(
        fmt::format("without any communication {} ranks reach {:.2f} of linear: this machine's cores, or the "
                    "smaller batch of each rank, cost the rest, and no transport can give it back",
                    one["ranks"].get<int>(), efficiency));
  }
  if (fewest < kFewSteps) {
    all.push_back(
        fmt::format("some runs have {:.0f} steps only; more --examples or --epochs make rates steadier", fewest));
  }
}

json warnings(const ScalingPlan& plan, const ScalingOutcomes& outcomes, const json& points,
              const std::optional<fabric::PacketProof>& proof) {
  json all = json::array();
  const int rounds = outcomes.rounds(plan);
  if (rounds < plan.base.rounds) {
    all.push_back(fmt::format("{} of {} rounds were done; then: {}", rounds, plan.base.rounds, outcomes.ended_by));
  }
  if (rounds < kRoundsForVerdict) {
    all.push_back(fmt::format("{} of at least {} rounds: the intervals of B/A are no basis for a verdict", rounds,
                              kRoundsForVerdict));
  }
  warn_of_congestion(plan, outcomes, all);
  warn_of_limits(points, all);
  for (const ScalingRun& one : outcomes.runs) {
    if (one.run.role == Role::kCeiling || one.run.train.value("replicas_identical", json(nullptr)) != false) continue;
    all.push_back(fmt::format("replicas were NOT identical in round {} with {} ranks, {}", one.run.round + 1, one.ranks,
                              ab::to_string(one.run.role)));
  }
  if (proof && !proof->per_packet()) all.push_back("the fabric's proof that its queues hold packets was not complete");
  return all;
}

}  // namespace

json to_json(const ScalingPlan& plan, const ScalingOutcomes& outcomes,
             const std::optional<fabric::PacketProof>& proof) {
  std::vector<Slot> slots = order_of_round(plan, 0);
  json points = json::array();
  for (const Slot& slot : slots) points.push_back(point(plan, outcomes, slot));
  json runs = json::array();
  for (const ScalingRun& one : outcomes.runs) runs.push_back(run_json(one));
  const json place = place_json(plan, outcomes, proof);
  json all_warnings = warnings(plan, outcomes, points, proof);
  if (const std::string warning = one_place_warning(place); !warning.empty()) all_warnings.push_back(warning);
  const json& train = outcomes.runs.front().run.train;
  json config = train.at("config");
  for (const char* changes : {"batch", "rate", "seed", "no_communication", "check_equal"}) config.erase(changes);
  const std::string& kernels = outcomes.kernel_congestion_control;
  return {{"model", plan.base.train.model},
          {"shape", train.at("shape")},
          {"gradient_bytes", train.at("gradient_bytes")},
          {"replay", train.value("replay", json(nullptr))},
          {"batch_rule", to_string(plan.rule)},
          {"ranks", plan.ranks},
          {"rounds", outcomes.rounds(plan)},
          {"planned_rounds", plan.base.rounds},
          {"ended_by", outcomes.ended_by.empty() ? json(nullptr) : json(outcomes.ended_by)},
          {"seconds", outcomes.seconds},
          {"place", place},
          {"baseline", plan.base.baseline.name},
          {"candidate", plan.base.candidate.name},
          {"arms", {arm_facts(plan.base.baseline, kernels), arm_facts(plan.base.candidate, kernels)}},
          {"points", points},
          {"ratios", ratios(plan, outcomes)},
          {"warnings", all_warnings},
          {"inherited_settings", inherited_settings()},
          {"config", config},
          {"runs", runs}};
}

json rows(const json& outcome) {
  json all = outcome.at("points");
  for (json& row : all) {
    for (const char* key : {"model", "baseline", "candidate", "batch_rule"}) row[key] = outcome.at(key);
    row["replay"] = outcome.at("replay").is_null() ? json(nullptr) : outcome["replay"].at("label");
  }
  return all;
}

json find_point(const json& outcome, int ranks, const std::string& arm) {
  for (const json& one : outcome.at("points")) {
    if (one.at("ranks") == ranks && one.at("arm") == arm) return one;
  }
  return nullptr;
}

std::string rule_text(const json& outcome) {
  const json& one = outcome.at("points").at(0);
  const std::string of_one = fmt::format("one rank: batch {}, learning rate {:g}", one.at("batch").get<int>(),
                                         one.at("learning_rate").get<double>());
  if (outcome.at("batch_rule") == to_string(BatchRule::kWeak)) {
    return of_one +
           "; n ranks: n times the batch and n times the learning rate (weak scaling; Goyal et al. 2017, no warm-up)";
  }
  return of_one + "; n ranks share the same batch, at the same learning rate (strong scaling)";
}

}  // namespace clustar::bench::ab::scaling
