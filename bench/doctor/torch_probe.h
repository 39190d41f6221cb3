// Asks a Python what torch_checks.h has.
#pragma once

#include <string>

#include "bench/doctor/torch_checks.h"

namespace clustar::bench::doctor {

// `python`: a name on PATH, or a path. It runs there what a training would: imports, and a group of one rank.
TorchFacts torch_facts_of(const std::string& python);

}  // namespace clustar::bench::doctor
