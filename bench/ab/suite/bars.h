// The bars that a suite is held to: whether a figure is met, missed, or was not measured.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace clustar::bench::ab::suite {

// Of `training` whose scenarios have their "figures": [{scenario, arm, what, value, low, high, limit, met, text}].
// "met" goes by the estimate, for accuracy by the interval's lower end; null: not measured. Only of scenarios and arms
// that were asked for.
nlohmann::json bars_of(const nlohmann::json& training);

}  // namespace clustar::bench::ab::suite
