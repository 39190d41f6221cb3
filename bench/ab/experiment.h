// The plan of a comparison and its conduct: which arm runs when, with which seed, and what came out.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "bench/ab/arm.h"
#include "bench/ab/cluster/starter.h"
#include "bench/ab/testbed.h"
#include "bench/fabric/spec.h"
#include "bench/trainer/config.h"
#include "transport/base/result.h"

namespace clustar::bench::ab {

inline constexpr int kDefaultRounds = 6;

// kCeiling is the baseline without its collectives.
enum class Role : std::uint8_t { kBaseline, kCandidate, kCeiling };
const char* to_string(Role role);

struct Plan {
  Arm baseline;
  Arm candidate;
  int ranks = 4;
  std::optional<cluster::Spec> cluster;      // a real one; then no fabric
  std::optional<fabric::FabricSpec> fabric;  // neither: loopback
  int rounds = kDefaultRounds;
  trainer::TrainConfig train;  // its seed is that of the first round
  int channels = 1;
  int stall_timeout_s = 60;
  int limit_s = 0;  // of a run; 0: none
};

// The order within round `round`, from 0: baseline, ceiling, candidate, and reversed in every other round, so that a
// machine that gets faster or slower over time favours neither arm (A B B A A B ...).
std::vector<Role> order_of_round(int round);

// The options for `clustar train` of one run.
std::vector<std::string> train_arguments(const Plan& plan, Role role, int round);

struct Run {
  Role role = Role::kBaseline;
  int round = 0;         // from 0
  nlohmann::json train;  // what the trainer reported
  SwitchCounters network;
  double wall_s = 0;  // with start, loading, evaluation and replica checks
};

struct Outcomes {
  std::vector<Run> runs;  // in the order in which they ran; of whole rounds
  std::string ended_by;   // why there are fewer rounds than planned; empty: there are not
  std::string kernel_congestion_control;
  double seconds = 0;

  // One value per round.
  std::vector<double> by_round(Role role, const std::string& key) const;
};

// What conduct() says while it works. Each may be empty.
struct Progress {
  std::function<void(int done, int total, const Run& run)> on_run;
  std::function<void(const nlohmann::json& record)> on_record;  // of a run in progress
  std::function<void(const Outcomes& so_far)> on_round;         // after each whole round but the last
};

// One training, of the arm that the role has in `plan`. An error says what failed, not which run it was.
Result<Run> run_once(const Plan& plan, Testbed& testbed, Role role, int round,
                     const std::function<void(const nlohmann::json& record)>& on_record);

// Runs all rounds, one run at a time. The first run that fails ends it, and so does an interrupt (see Interrupt): whole
// rounds that were done by then are its outcome, with ended_by; without any it is an error that names round and arm.
Result<Outcomes> conduct(const Plan& plan, Testbed& testbed, const Progress& progress);

}  // namespace clustar::bench::ab
