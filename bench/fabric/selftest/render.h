// The report of a selftest as text and JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "bench/fabric/selftest/selftest.h"

namespace clustar::bench::fabric::selftest {

std::string text(const Report& report);
// Numbers that were not measured are null.
nlohmann::json to_json(const Report& report);

}  // namespace clustar::bench::fabric::selftest
