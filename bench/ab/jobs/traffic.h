// A job of a trace: as the simulator's kind of job on the hosts of a fabric, and played there.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bench/ab/jobs/job.h"
#include "bench/coflow/jobs.h"
#include "transport/base/result.h"

namespace clustar::bench::ab::jobs {

// A mix of that one job (which is no Training), whose ports are the fabric's hosts; sizes are for lines of `rate_bps`.
// kInvalidArgument: a trace that cannot be read, sends nothing between its hosts, or has no rank for
// one of them (AICB).
Result<coflow::JobMix> mix_of(const JobSpec& job, std::uint64_t rate_bps);
// The same of the trace's text.
Result<coflow::JobMix> mix_of(const JobSpec& job, std::uint64_t rate_bps, const std::string& text);

// Plays it on the fabric of that name, over clustar's transport as this process's environment has it. Seconds of each
// iteration; `on_iteration` hears of each when it has ended. Errors: no such fabric, what play() says.
Result<std::vector<double>> play(const JobSpec& job, const std::string& fabric, int limit_s,
                                 const std::function<void(std::size_t iterations)>& on_iteration,
                                 const std::function<bool()>& stop);

}  // namespace clustar::bench::ab::jobs
