// Outcomes as JSON, which plots and pages are made from.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "bench/lossy/experiment.h"

namespace clustar::bench::lossy {

// The keys are in README.md.
nlohmann::json to_json(const ScenarioOutcome& outcome);
// {cores_used, cores, seconds, disturbs}
nlohmann::json to_json(const perf::OtherCpu& other);

}  // namespace clustar::bench::lossy
