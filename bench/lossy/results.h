// Outcomes as JSON, which plots and pages are made from, and as a table for people.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "bench/lossy/experiment.h"

namespace clustar::bench::lossy {

// The keys are in README.md.
nlohmann::json to_json(const ScenarioOutcome& outcome);
// Of one scenario's JSON.
std::string table(const nlohmann::json& scenario);

}  // namespace clustar::bench::lossy
