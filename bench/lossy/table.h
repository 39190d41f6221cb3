// A scenario's results as a table for people.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace clustar::bench::lossy {

// Of one scenario as to_json() of results.h gives it.
std::string table(const nlohmann::json& scenario);

}  // namespace clustar::bench::lossy
