// Several jobs under two arms: what runs when, with which arguments and settings, and what came out. Knows no fabric:
// a function that it is given does the runs.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "bench/ab/experiment.h"
#include "bench/ab/jobs/figures.h"
#include "bench/ab/jobs/job.h"
#include "bench/fabric/spec.h"
#include "transport/base/result.h"

namespace clustar::bench::ab::jobs {

struct JobsPlan {
  std::string file{};        // that has the jobs
  std::uint64_t digest = 0;  // of its text, by which a process that plays a trace sees that it has changed
  std::vector<JobSpec> jobs{};
  std::array<Arm, 2> arms{};
  int rounds = kDefaultRounds;
  fabric::FabricSpec fabric{};
  Plan training{};            // of which train, channels and stall_timeout_s count
  int limit_s = 1800;         // of a job, from its start
  std::size_t processes = 0;  // of all jobs at a time, as check() counts them
};

// How many processes send when all jobs run: of a queue one for each of its jobs and hosts, otherwise one for each
// host. kInvalidArgument: jobs that do not fit the fabric, the arms or, on a host, each other; settings that our
// plugin, whose path this is, refuses; a trace that cannot be played. Names the file and the jobs.
Result<std::size_t> check(const JobsPlan& plan, const std::string& own_plugin);

// What runs at a time: all jobs under an arm, or one of them alone, under the first arm.
struct Slot {
  std::size_t arm = 0;
  std::optional<std::size_t> alone{};
  bool operator==(const Slot&) const = default;
};
std::string name_of(const JobsPlan& plan, const Slot& slot);  // "A, all jobs", "big alone"
// A, each job alone if there are others, B, and reversed in every other round, so that a machine that gets faster or
// slower over time favours neither arm.
std::vector<Slot> order_of_round(std::size_t jobs, int round);

// For `clustar train` of a job that trains, without --rank, --size and --root. Each round adds one to the seed.
std::vector<std::string> train_arguments(const JobsPlan& plan, const JobSpec& job, const Arm& arm, int round);
int epochs_of(const JobsPlan& plan, const Training& training);
int batch_of(const JobsPlan& plan, const Training& training);
// Of the job's processes.
Settings environment_of(const JobsPlan& plan, const JobSpec& job, const Arm& arm, const Settings& inherited);

struct Run {
  Slot slot{};
  int round = 0;  // from 0
  std::vector<JobRun> jobs{};
  std::vector<nlohmann::json> details{};  // of each what else is worth keeping
  std::string failure{};                  // names the job; empty: all ended well
  SwitchCounters network{};
  double wall_s = 0;
};

struct JobsOutcomes {
  std::vector<Run> runs{};              // in the order in which they ran, also those that failed
  std::vector<std::string> left_out{};  // slots that failed twice and were not run any more
  std::string ended_by{};               // why there are fewer rounds than planned; empty: there are not
  double seconds = 0;
};

struct JobsEvents {
  std::function<void(const Run& run, int done, int total)> on_run;
  std::function<void(const JobsOutcomes& so_far)> on_change;  // worth writing down; after each run
  std::function<int()> interrupted;                           // the signal that came, or 0
};

// All rounds, one run at a time. `run` returns an error for what makes going on senseless: the run was interrupted, or
// the fabric is gone. A run whose jobs failed is an outcome; what failed twice is left out of the rest.
JobsOutcomes conduct(const JobsPlan& plan, const std::function<Result<Run>(const Slot&, int round)>& run,
                     const JobsEvents& events);

}  // namespace clustar::bench::ab::jobs
