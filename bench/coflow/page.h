// The pages of `clustar coflow`: from the JSON alone, so that `clustar report` draws them again at any time.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "transport/base/result.h"

namespace clustar::bench::coflow {

// Whether it is what `clustar coflow replay` or `clustar coflow sweep` writes.
bool can_draw(const nlohmann::json& document);

// One file, nothing outside it. Errors: kInvalidArgument with what the document lacks.
Result<std::string> page(const nlohmann::json& document);

}  // namespace clustar::bench::coflow
