// The report: one HTML page that refers to nothing outside itself.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

namespace clustar::bench::ab::suite {

// `document`: the envelope with "training", which has been judged (see figures.h).
std::string page(const nlohmann::json& document);

// The plots of one scenario; needs kColours.
std::string plots_of(const nlohmann::json& training, const nlohmann::json& scenario);
extern const char* const kColours;  // of carriers
using Curve = std::vector<std::pair<double, double>>;
// Point by point, of runs whose points are at the same steps. It ends where the first run ends: beyond, it would be
// that of other runs.
Curve median_curve(const std::vector<Curve>& runs);
// The class of a carrier's colour.
std::string colour_of(const std::string& carrier);

}  // namespace clustar::bench::ab::suite
