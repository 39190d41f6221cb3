// Which arm runs when, and what is kept of it. Knows no fabric: hands that it is given do the runs.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/ab/experiment.h"
#include "bench/ab/suite/arm.h"
#include "bench/ab/suite/scenario.h"
#include "transport/base/result.h"

namespace clustar::bench::ab::suite {

inline constexpr int kDefaultSeeds = 10;

struct SuitePlan {
  std::vector<Scenario> scenarios;
  std::vector<SuiteArm> arms;
  int rounds = kDefaultSeeds;  // a seed each, the same for all arms
  // What ratios are taken to: "auto", the better TCP with rto_min 5 ms of the same algorithm; or a carrier's name, of
  // the same algorithm.
  std::string reference = "auto";
  std::string missing = "rescale";  // of the all-to-all: zero, rescale, residual
  // Of which train and channels count, baseline.plugin is our plugin, and the rest is unused.
  Plan training;
  std::uint64_t largest_bucket_bytes = 0;  // of the model's gradients
  int limit_s = 1800;                      // of one run, by the wall clock
  bool retry_failed = false;               // those of an earlier result; otherwise they count as they are
  std::string version = {};                // of clustar, which results that are put together have to share
};

// Indices of `arms` things in the order of round `round`, from 0. Rotated by one in every other round, and reversed in
// the rounds between, so that over 2 * arms rounds each has each position twice, and over two neighbouring rounds all
// have the same mean position.
std::vector<std::size_t> order_of_round(std::size_t arms, int round);

// Of one run, for `clustar train`.
std::vector<std::string> train_arguments(const SuitePlan& plan, const SuiteArm& arm, int round);

struct Hands {
  // Makes what the scenario needs; returns what is worth noting of the place. An error ends the scenario.
  std::function<Result<nlohmann::json>(const Scenario&)> open;
  // One run: {"train": what the trainer reported, anything else of the run}. kUnavailable: this machine cannot run the
  // arm at all.
  std::function<Result<nlohmann::json>(const Scenario&, const SuiteArm&, int round)> run;
  std::function<void()> close;
};

struct SuiteEvents {
  // After each run: its record, how many are done of how many, and the seconds that the rest will take.
  std::function<void(const nlohmann::json& run, int done, int total, double rest_s)> on_run;
  std::function<void(const nlohmann::json& training)> on_change;  // worth writing down
  std::function<int()> interrupted;                               // the signal that came, or 0
};

// All runs, scenario by scenario, round by round: {options, scenarios [{name, ..., place, arms, runs, problems}],
// interrupted, ended_by}; what on_change gets is "interrupted" until the last run. An arm that failed twice in a
// scenario, or cannot run ("unavailable" in its run), is left out of the rest of it; the others go on.
//
// The result begins as `before`, an earlier one, with whatever that has beyond `plan`, so nothing measured is lost
// where no place can be made. Runs that it has are not done again; with plan.retry_failed the failed ones are, and keep
// "failed_before". kInvalidArgument, naming what differs, when it was made with other options, fabrics or another
// version. What its places had to say stays in "earlier_places" and "earlier_problems" of the scenario.
Result<nlohmann::json> conduct(const SuitePlan& plan, const Hands& hands, const SuiteEvents& events,
                               const nlohmann::json& before = nullptr);

}  // namespace clustar::bench::ab::suite
