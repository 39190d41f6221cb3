// What a run says of a queue of jobs: when each of them was done.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <vector>

#include "bench/coflow/summary.h"

namespace clustar::bench::ab::jobs {

// {mean_completion_s (from submission on), mean_waited_s (for GPUs), makespan_s, jobs[]}.
nlohmann::json queue_json(const std::vector<coflow::JobSummary>& jobs);

// Of a job's details in a run, which have that as "queue"; nothing of a job that is none.
std::optional<double> queue_figure(const nlohmann::json& details, const char* key);

}  // namespace clustar::bench::ab::jobs
