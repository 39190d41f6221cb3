// The bars that a suite is held to: whether a figure is met, missed, or was not measured.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace clustar::bench::ab::suite {

// Of `training` whose scenarios have their "figures": [{scenario, arm, what, value, low, high, limit, met, text}], of
// the scenarios and arms that were asked for. "met" goes by the estimate, for accuracy by the interval's lower end, and
// is null, with the reason in "text", where it cannot be told: not measured, too few pairs, not the reference it needs.
// A failed run of an arm that may lose misses its bars of contract and accuracy.
nlohmann::json bars_of(const nlohmann::json& training);

}  // namespace clustar::bench::ab::suite
