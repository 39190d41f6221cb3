// Rows as a person reads them and as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "bench/sim/experiments.h"

namespace clustar::bench::sim {

// A heading, then a line for each row.
std::string table(const Experiment& experiment, const Rows& rows);
// [{experiment, situation, arm, figures{name: value}, bar{figure, at_least or at_most, met}}]
nlohmann::json to_json(const Experiment& experiment, const Rows& rows);

}  // namespace clustar::bench::sim
