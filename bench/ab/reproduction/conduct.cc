#include "bench/ab/reproduction/conduct.h"

#include <fmt/format.h>

#include <algorithm>

#include "bench/fabric/spec.h"
#include "bench/trainer/compute/cards.h"
#include "bench/trainer/compute/options.h"
#include "bench/trainer/compute/rank_compute.h"
#include "bench/trainer/limits.h"
#include "bench/trainer/model.h"

namespace clustar::bench::ab::reproduction {
namespace {

using nlohmann::json;

constexpr int kProbes = 2;  // the second with the steps that the first asked for
constexpr std::size_t kBaseline = 0, kCeiling = 1, kFirstArm = 2;

Load load_of(const TablePlan& plan, const Row& row) {
  const trainer::Model model = *trainer::make_model(row.model);
  const trainer::LayerTimes times =
      trainer::estimate(model, *trainer::find_card(plan.card), static_cast<std::size_t>(plan.batch));
  std::uint64_t elements = 0;
  for (const std::size_t count : model.tensor_elements()) elements += count;
  return {.compute_s = times.forward_s() + times.backward_s(),
          .gradient_bytes = elements * sizeof(float),
          .ranks = plan.ranks,
          .rate_bps = plan.rate_bps};
}

// Why no replay can be scaled so, or "".
std::string beyond_limits(const TablePlan& plan, const Row& row, const Scales& scales) {
  constexpr double kMost = trainer::kMostScale;
  const bool large = scales.time > kMost || scales.byte > kMost;
  if (!large && scales.time >= 1 / kMost) return {};
  const std::string what = scales.byte > kMost
                               ? fmt::format("its bytes would be divided by {:.3g}", scales.byte)
                               : fmt::format("computing on {} would take {:.3g} times as long", plan.card, scales.time);
  return fmt::format(
      "{}: so that --rate {} leaves {:g} times what was reported, {}; a replay takes {:g} to {:g}. Allowed: a {} "
      "--rate{}",
      row.model, fabric::rate_text(plan.rate_bps), kRoom, what, 1 / kMost, kMost, large ? "faster" : "slower",
      scales.byte > kMost ? "" : fmt::format(", or a {} --table-card", large ? "slower" : "faster"));
}

std::size_t examples_of_step(const TablePlan& plan) {
  return static_cast<std::size_t>(plan.batch) * static_cast<std::size_t>(plan.ranks);
}

int most_steps(const TablePlan& plan) { return static_cast<int>(trainer::kExamples.most / examples_of_step(plan)); }

std::string name_of(const TablePlan& plan, std::size_t who) {
  if (who == kCeiling) return to_string(Role::kCeiling);
  return who == kBaseline ? plan.baseline.name : plan.arms[who - kFirstArm].name;
}

class RowRunner {
 public:
  RowRunner(const TablePlan& plan, const Row& row, const Hands& hands) : plan_(plan), row_(row), hands_(hands) {}

  json run() {
    const Load load = load_of(plan_, row_);
    scales_ = first_scales(row_, load);
    steps_ = plan_.steps;
    for (int probes = 0; probes < kProbes; ++probes) {
      const auto probe = train(kBaseline, 0);
      if (!probe) return told(probe.error().message);
      probe_exposed_s_ = probe->at("exposed_comm_s").get<double>() / probe->at("steps").get<double>();
      scales_.time = time_scale(row_, load, probe_exposed_s_);
      const std::string beyond = beyond_limits(plan_, row_, scales_);
      if (!beyond.empty()) return told(beyond);
      steps_ = std::max(plan_.steps, std::min(steps_of(row_, load.compute_s * scales_.time), most_steps(plan_)));
    }
    for (int round = 0; round < plan_.rounds; ++round) {
      for (const std::size_t who : order_of_round(plan_.arms.size(), round)) {
        const auto results = train(who, round);
        if (!results)
          return told(fmt::format("round {}, {}: {}", round + 1, name_of(plan_, who), results.error().message));
        keep(who, round, *results);
      }
    }
    return told("");
  }

 private:
  Result<json> train(std::size_t who, int round) {
    if (const int signal = hands_.interrupted(); signal != 0) {
      return fail(ErrorCode::kSystem, fmt::format("interrupted by signal {}", signal));
    }
    const Role role = who == kBaseline ? Role::kBaseline : who == kCeiling ? Role::kCeiling : Role::kCandidate;
    return hands_.train(plan_of(plan_, row_, scales_, who < kFirstArm ? 0 : who - kFirstArm, steps_), role, round);
  }

  void keep(std::size_t who, int round, const json& results) {
    json run{{"arm", name_of(plan_, who)}, {"round", round + 1}};
    for (const char* key : {"images_per_second", "exposed_comm_s", "compute_s", "steps", "bytes_sent", "plans",
                            "missing_bytes", "replicas_identical", "replay", "other_cpu_cores", "other_cpu_disturbs"}) {
      run[key] = results.value(key, json(nullptr));
    }
    if (hands_.say) {
      hands_.say(fmt::format("{:<9} round {}/{}  {:<24} {:>9.4g} images/s  exposed {:.3f} s per step", row_.model,
                             round + 1, plan_.rounds, name_of(plan_, who), run["images_per_second"].get<double>(),
                             run["exposed_comm_s"].get<double>() / run["steps"].get<double>()));
    }
    runs_.push_back(std::move(run));
  }

  json told(const std::string& problem) const {
    return {{"model", row_.model},
            {"published", row_.published},
            {"wanted_ceiling", wanted_ceiling(row_)},
            {"time_scale", scales_.time},
            {"byte_scale", scales_.byte},
            {"steps", steps_},
            {"probe_exposed_s", probe_exposed_s_},
            {"runs", runs_},
            {"problem", problem.empty() ? json(nullptr) : json(problem)}};
  }

  const TablePlan& plan_;
  const Row& row_;
  const Hands& hands_;
  Scales scales_;
  int steps_ = 1;
  double probe_exposed_s_ = 0;
  json runs_ = json::array();
};

}  // namespace

std::vector<std::size_t> order_of_round(std::size_t arms, int round) {
  std::vector<std::size_t> order(arms + kFirstArm);
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = (i + static_cast<std::size_t>(round)) % order.size();
  return order;
}

Result<void> check(const TablePlan& plan) {
  for (const Row& row : plan.rows) {
    const std::string beyond = beyond_limits(plan, row, first_scales(row, load_of(plan, row)));
    if (!beyond.empty()) return fail(ErrorCode::kInvalidArgument, beyond);
  }
  if (plan.steps <= most_steps(plan)) return {};
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("--table-steps {}: {} hosts take {} examples a step, and a run has {} at most; allowed: {} "
                          "steps at most",
                          plan.steps, plan.ranks, examples_of_step(plan), trainer::kExamples.most, most_steps(plan)));
}

Plan plan_of(const TablePlan& plan, const Row& row, const Scales& scales, std::size_t arm, int steps) {
  Plan one;
  one.baseline = plan.baseline;
  one.candidate = plan.arms.at(arm);
  one.ranks = plan.ranks;
  one.rounds = plan.rounds;
  one.stall_timeout_s = plan.stall_timeout_s;
  one.train.model = row.model;
  one.train.epochs = 1;
  one.train.batch = plan.batch * plan.ranks;
  one.train.generated = examples_of_step(plan) * static_cast<std::size_t>(steps);
  one.train.seed = plan.seed;
  one.train.compute.kind = trainer::ComputeKind::kEstimate;
  one.train.compute.source = plan.card;
  one.train.compute.time_scale = scales.time;
  one.train.compute.byte_scale = scales.byte;
  return one;
}

json conduct(const TablePlan& plan, const Hands& hands) {
  json rows = json::array();
  for (const Row& row : plan.rows) {
    rows.push_back(RowRunner(plan, row, hands).run());
    if (hands.on_row) hands.on_row(rows);
  }
  return rows;
}

}  // namespace clustar::bench::ab::reproduction
