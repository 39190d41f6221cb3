// One scenario: its fabric, the crews of all its arms, their rounds in turns.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "bench/lossy/figures.h"
#include "bench/lossy/machine.h"
#include "bench/lossy/scenario.h"
#include "bench/lossy/testbed.h"
#include "transport/base/result.h"

namespace clustar::bench::lossy {

struct ArmOutcome {
  ArmSamples samples;
  std::string label;
  std::string transport;
  std::string skipped;             // why it was not measured: this build or machine cannot
  std::string failure;             // what ended it; what was measured until then stays
  std::vector<double> message_ms;  // of rounds that count
  std::uint64_t delivered_bytes = 0, missing_bytes = 0, eligible_bytes = 0;
  SwitchCounts switches;                       // while it ran
  double seconds = 0;                          // of measured rounds
  double cpu_s = 0;                            // of the arm's processes at both ends
  double machine_cpu_s = 0;                    // of everybody, interrupts included, during its turns; 0 = not known
  std::uint64_t interface_drops = 0;           // during its turns: see MachineCounts
  std::optional<std::uint64_t> retransmitted;  // packets, by all senders; nothing: not known
  nlohmann::json facts = nlohmann::json::object();  // by job: what was read back at the end of the last turn
};

struct ScenarioOutcome {
  Scenario scenario;
  int rounds = 0;
  std::string skipped;  // why nothing of it ran
  std::uint64_t seed = 1;
  double one_way_ms = 0;  // 0: could not be measured, and a note says why
  double ideal_ms = 0;
  double deadline_ms = 0;  // of the static-deadline arm
  std::string delay_mode;
  bool stalls_known = false;  // see StallWatch
  std::uint64_t backstop_drops = 0;
  std::optional<perf::OtherCpu> other_cpu;  // nothing: not known
  std::optional<double> idle_cores;         // busy while all arms slept, before streams; nothing: not measured
  std::vector<std::string> notes;
  std::vector<ArmOutcome> arms;
};

struct Run {
  std::string executable = {};  // `clustar`, for the workers
  int rounds = 0;               // 0: the scenario's
  bool quick = false;
  std::vector<std::string> arms = {};  // empty: the scenario's
  std::uint64_t seed = 1;              // of losses and bursts
  int warm_up = 3;                     // rounds of each arm before the first that counts
  std::function<void(const std::string& line)> progress = {};
};

int rounds_of(const Scenario& scenario, const Run& run);
std::vector<std::string> arms_of(const Scenario& scenario, const Run& run);
double estimated_seconds(const Scenario& scenario, const Run& run);

// Errors: interrupted; no fabric can be made. An arm that fails or cannot be measured says so in its outcome.
Result<ScenarioOutcome> conduct(const Scenario& scenario, const Run& run);

}  // namespace clustar::bench::lossy
