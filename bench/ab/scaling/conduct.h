// The same training at several numbers of ranks: what each run is, their order, and their conduct.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bench/ab/experiment.h"
#include "transport/base/result.h"

namespace clustar::bench::ab::scaling {

// How batch and learning rate go with the number of ranks.
enum class BatchRule : std::uint8_t {
  kWeak,    // a rank's batch stays: global batch and learning rate grow with the ranks (Goyal et al. 2017, arXiv
            // 1706.02677, without its warm-up)
  kStrong,  // global batch and learning rate stay: a rank's share shrinks
};
const char* to_string(BatchRule rule);

struct ScalingPlan {
  Plan base;               // of one rank; its `ranks` says nothing
  std::vector<int> ranks;  // ascending, from 1 on
  BatchRule rule = BatchRule::kWeak;
};

// "1,2,4,8": ascending, from 1 on, at least two of them. kInvalidArgument says what is allowed.
Result<std::vector<int>> parse_counts(const std::string& text, int most);

// Equal passes over the same examples, so that accuracies compare. A replay learns nothing: by the weak rule it has as
// many examples a rank, so that each run has as many steps.
Plan plan_at(const ScalingPlan& plan, int ranks);

// What plan_at() of the largest number cannot tell. kInvalidArgument: a number of ranks that an arm's plan or the batch
// does not fit, helpers, a target accuracy, fewer examples than a step needs.
Result<void> check(const ScalingPlan& plan);

struct Slot {
  int ranks = 1;
  Role role = Role::kBaseline;
  bool operator==(const Slot&) const = default;
};

// Up the numbers of ranks in round 0, down in round 1, and so on; at each the arms as in ab::order_of_round(). One rank
// runs once, without communication.
std::vector<Slot> order_of_round(const ScalingPlan& plan, int round);

struct ScalingRun {
  int ranks = 1;
  Run run;
};

struct ScalingOutcomes {
  std::vector<ScalingRun> runs;  // in the order in which they ran; of whole rounds
  std::string ended_by;          // why there are fewer rounds than planned; empty: there are not
  std::string kernel_congestion_control;
  double seconds = 0;

  int rounds(const ScalingPlan& plan) const;
  // One value per round.
  std::vector<double> by_round(const Slot& slot, const std::string& key) const;
};

using RunOne = std::function<Result<Run>(const Plan& plan, Role role, int round)>;

// Each may be empty.
struct ScalingEvents {
  std::function<void(const ScalingRun& run, int done, int total)> on_run;
  std::function<void(const ScalingOutcomes& so_far)> on_round;  // after each whole round but the last
  std::function<int()> interrupted;                             // the signal that came, or 0
};

// As ab::conduct(): the first run that fails ends it, and whole rounds before it are the outcome; without any it is an
// error that names round, ranks and arm.
Result<ScalingOutcomes> conduct(const ScalingPlan& plan, const RunOne& run_one, const ScalingEvents& events);

}  // namespace clustar::bench::ab::scaling
