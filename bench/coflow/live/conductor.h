// Plays a workload over the hosts of a fabric: starts an agent for each host and job, tells them of each coflow when
// its time has come, and hears when its last byte is there.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "bench/coflow/live/arms.h"
#include "bench/coflow/live/plan.h"
#include "bench/coflow/replay.h"
#include "bench/fabric/fabric.h"

namespace clustar::bench::coflow::live {

struct Stage {
  const fabric::Fabric& fabric;                      // host i is port i
  double port_rate = 0;                              // bytes per second that a line can carry
  std::map<std::string, std::string> environment{};  // of agents, for arms that are not plain
  std::function<bool()> stop{};                      // asked now and then; true: give up
  std::uint64_t first_job = 1;                       // CLUSTAR_JOB of the first job, unless the environment has it
  std::vector<std::string> jobs{};                   // of a mix: their names, for errors
  std::vector<int> deadlines_ms{};                   // and their CLUSTAR_DEADLINE_MS, under a coordinator; 0: none
};

// Completion times count from a coflow's arrival in the workload to its last byte's at its receiver. Errors: what an
// agent says, one that died, more than `limit`, or stop(). By then all agents have ended.
Result<Replay> play(Workload& workload, Plan& plan, const Arm& arm, const Stage& stage, Duration limit,
                    const Progress& progress);

}  // namespace clustar::bench::coflow::live
