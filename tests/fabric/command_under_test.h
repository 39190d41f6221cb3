// `clustar fabric WHAT --name NAME ...`, as a process of its own.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tests/trainer/command.h"

namespace clustar::bench::fabric {

inline std::vector<std::string> fabric_arguments(const std::string& name, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin() + 1, {"--name", name});
  arguments.insert(arguments.begin(), "fabric");
  return arguments;
}

inline trainer::Outcome run_fabric(const std::string& name, std::vector<std::string> arguments) {
  return trainer::run_clustar(fabric_arguments(name, std::move(arguments)));
}

}  // namespace clustar::bench::fabric
