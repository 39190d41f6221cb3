#include "bench/ab/scaling/conduct.h"

#include <fmt/format.h>
#include <string.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "bench/trainer/limits.h"

namespace clustar::bench::ab::scaling {
namespace {

using Clock = std::chrono::steady_clock;

// Of generated examples, this part is trained on (trainer::split_dataset()); a replay holds none out.
double trained_part(const trainer::TrainConfig& train) { return train.compute.replays() ? 1.0 : 0.8; }

std::string words_of(const Slot& slot) {
  if (slot.ranks == 1) return "1 rank";
  return fmt::format("{} ranks, {}", slot.ranks, ab::to_string(slot.role));
}

Result<void> check_arm(const char* option, const Arm& arm, const std::vector<int>& counts) {
  if (arm.helpers() > 0) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("{}: helpers are not for --scaling", option));
  }
  for (const int ranks : counts) {
    if (ranks == 1) continue;
    if (const auto ok = check_options(arm, ranks); !ok) {
      return fail(ok.error().code, fmt::format("{} with {} ranks: {}", option, ranks, ok.error().message));
    }
  }
  return {};
}

// What one rank has of an option, times the ranks, is an option of their run.
template <typename T>
Result<void> check_product(const char* option, T of_one, int ranks, const trainer::Limits<T>& limits) {
  const T factor = static_cast<T>(ranks);
  if (of_one * factor <= limits.most) return {};
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("{} {} is that of one rank: {} ranks would have {}, and a run takes {} to {}; allowed: {} at "
                          "most, or --batch-rule strong",
                          option, of_one, ranks, of_one * factor, limits.least, limits.most, limits.most / factor));
}

Result<void> check_products(const ScalingPlan& plan) {
  const trainer::TrainConfig& one = plan.base.train;
  const int most = plan.ranks.back();
  if (plan.rule != BatchRule::kWeak) return {};
  if (const auto ok = check_product("--batch", one.batch, most, trainer::kBatch); !ok) return ok;
  if (const auto ok = check_product("--lr", one.rate, most, trainer::kRate); !ok) return ok;
  return one.compute.replays() ? check_product("--examples", one.generated, most, trainer::kExamples) : Result<void>();
}

// All runs of one round; the first that fails is the error.
Result<std::vector<ScalingRun>> run_round(const ScalingPlan& plan, int round, const RunOne& run_one,
                                          const ScalingEvents& events) {
  std::vector<ScalingRun> runs;
  const std::vector<Slot> order = order_of_round(plan, round);
  const int per_round = static_cast<int>(order.size());
  for (const Slot& slot : order) {
    const int signal = events.interrupted ? events.interrupted() : 0;
    if (signal != 0) {
      return fail(ErrorCode::kSystem, fmt::format("interrupted by signal {} ({})", signal, strsignal(signal)));
    }
    auto run = run_one(plan_at(plan, slot.ranks), slot.role, round);
    if (!run) {
      return fail(run.error().code, fmt::format("round {} of {}, {}: {}", round + 1, plan.base.rounds, words_of(slot),
                                                run.error().message));
    }
    runs.push_back({slot.ranks, std::move(*run)});
    const int done = round * per_round + static_cast<int>(runs.size());
    if (events.on_run) events.on_run(runs.back(), done, plan.base.rounds * per_round);
  }
  return runs;
}

}  // namespace

const char* to_string(BatchRule rule) { return rule == BatchRule::kWeak ? "weak" : "strong"; }

Result<std::vector<int>> parse_counts(const std::string& text, int most) {
  std::vector<int> counts;
  std::istringstream words(text);
  bool good = !text.empty() && text.back() != ',';
  for (std::string word; std::getline(words, word, ',');) {
    int count = 0;
    const auto parsed = std::from_chars(word.data(), word.data() + word.size(), count);
    good = good && parsed.ec == std::errc() && parsed.ptr == word.data() + word.size() && count <= most &&
           (counts.empty() ? count == 1 : count > counts.back());
    counts.push_back(count);
  }
  if (good && counts.size() >= 2) return counts;
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("--scaling '{}'; allowed: numbers of ranks in ascending order, from 1, which the others are "
                          "compared with, to {} at most: 1,2,4,8",
                          text, most));
}

Plan plan_at(const ScalingPlan& plan, int ranks) {
  Plan at = plan.base;
  at.ranks = ranks;
  if (plan.rule == BatchRule::kWeak) {
    at.train.batch *= ranks;
    at.train.rate *= ranks;
    if (at.train.compute.replays()) at.train.generated *= static_cast<std::size_t>(ranks);
  }
  return at;
}

Result<void> check(const ScalingPlan& plan) {
  if (plan.base.train.target_accuracy) {
    return fail(ErrorCode::kInvalidArgument, "--target-accuracy is not for --scaling, whose runs have equal epochs");
  }
  if (const auto ok = check_arm("--baseline", plan.base.baseline, plan.ranks); !ok) return ok;
  if (const auto ok = check_arm("--candidate", plan.base.candidate, plan.ranks); !ok) return ok;
  if (const auto ok = check_products(plan); !ok) return ok;
  const Plan largest = plan_at(plan, plan.ranks.back());
  if (largest.train.batch < largest.ranks) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("--batch {} gives some of the {} ranks nothing to do", largest.train.batch, largest.ranks));
  }
  // Of one rank's, where each rank has as many.
  const double part = trained_part(largest.train) * static_cast<double>(largest.train.generated) /
                      static_cast<double>(plan.base.train.generated);
  const double needed = std::ceil(largest.train.batch / part);
  if (largest.train.data.empty() && static_cast<double>(plan.base.train.generated) < needed) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("--examples {} are fewer than a step of {} ranks takes; allowed: {:.0f} or more",
                            plan.base.train.generated, largest.ranks, needed));
  }
  return {};
}

std::vector<Slot> order_of_round(const ScalingPlan& plan, int round) {
  std::vector<int> counts = plan.ranks;
  if (round % 2 != 0) std::reverse(counts.begin(), counts.end());
  std::vector<Slot> order;
  for (const int ranks : counts) {
    if (ranks == 1) {
      order.push_back({1, Role::kCeiling});
      continue;
    }
    for (const Role role : ab::order_of_round(round)) order.push_back({ranks, role});
  }
  return order;
}

int ScalingOutcomes::rounds(const ScalingPlan& plan) const {
  return static_cast<int>(runs.size() / order_of_round(plan, 0).size());
}

std::vector<double> ScalingOutcomes::by_round(const Slot& slot, const std::string& key) const {
  std::vector<double> values;
  // Rounds run one after the other, and each has every slot once.
  for (const ScalingRun& one : runs) {
    if (one.ranks == slot.ranks && one.run.role == slot.role) values.push_back(one.run.train.at(key).get<double>());
  }
  return values;
}

Result<ScalingOutcomes> conduct(const ScalingPlan& plan, const RunOne& run_one, const ScalingEvents& events) {
  const Clock::time_point start = Clock::now();
  ScalingOutcomes outcomes;
  for (int round = 0; round < plan.base.rounds; ++round) {
    auto runs = run_round(plan, round, run_one, events);
    if (!runs && round == 0) return tl::unexpected(runs.error());
    outcomes.seconds = std::chrono::duration<double>(Clock::now() - start).count();
    if (!runs) {
      outcomes.ended_by = runs.error().message;
      break;
    }
    for (ScalingRun& run : *runs) outcomes.runs.push_back(std::move(run));
    if (events.on_round && round + 1 < plan.base.rounds) events.on_round(outcomes);
  }
  return outcomes;
}

}  // namespace clustar::bench::ab::scaling
