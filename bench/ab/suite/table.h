// A suite's outcome for people. `training` has been judged (see figures.h).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace clustar::bench::ab::suite {

std::string table(const nlohmann::json& training);
// One line of progress.
std::string run_line(const nlohmann::json& run, int done, int total, double rest_s);

}  // namespace clustar::bench::ab::suite
