// A job of a trace: as the simulator's kind of job on the hosts of a fabric, and played there.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "bench/ab/jobs/job.h"
#include "bench/coflow/jobs.h"
#include "bench/coflow/summary.h"
#include "transport/base/result.h"

namespace clustar::bench::ab::jobs {

// A mix of that one job or queue (which is no Training), whose ports are the fabric's hosts; sizes are for lines of
// `rate_bps`. kInvalidArgument: a trace that cannot be read, sends nothing between its hosts, or has no rank for one of
// them (AICB).
Result<coflow::JobMix> mix_of(const JobSpec& job, std::uint64_t rate_bps);
// The same of the trace's text.
Result<coflow::JobMix> mix_of(const JobSpec& job, std::uint64_t rate_bps, const std::string& text);

// That send, by host: a trace has one for each of its jobs there.
using Processes = std::map<int, std::size_t>;
Processes processes_of(const coflow::JobMix& mix);

struct PlayedTrace {
  // Of each iteration, as they ended. A queue's jobs differ: its are those of its mean iteration, slowed as the one
  // that ended was against the same alone on the hosts that it got, and of the jobs that may send alone, so that any
  // part of a run is fit to be compared.
  std::vector<double> step_s{};
  std::vector<coflow::JobSummary> queue{};  // of a queue, as it has them
};

// Plays it on the fabric of that name, over clustar's transport as this process's environment has it. `on_iteration`
// hears how many of all have ended. Errors: no such fabric, what play() says.
Result<PlayedTrace> play(const JobSpec& job, const std::string& fabric, int limit_s,
                         const std::function<void(std::size_t iterations, std::size_t of)>& on_iteration,
                         const std::function<bool()>& stop);

// The steps of a run as above, from what its jobs have done so far.
class Steps {
 public:
  Steps(const coflow::JobMix& mix, double bytes_per_s);
  // Takes in what has ended since the last time.
  void look(const std::vector<coflow::JobResult>& results);
  const std::vector<double>& seconds() const { return seconds_; }
  std::size_t total() const { return total_; }

 private:
  std::vector<bool> counts_;  // by job
  std::vector<std::size_t> seen_;
  double mean_s_ = 0;  // of a queue: its iterations alone
  std::size_t total_ = 0;
  std::vector<double> seconds_;
};

}  // namespace clustar::bench::ab::jobs
