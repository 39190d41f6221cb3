// Can PyTorch use the backend `clustar` of torch.distributed here? What was found, and what is said of it. Pure.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "bench/doctor/check.h"

namespace clustar::bench::doctor {

// What one Python said; each step that failed says why, and later ones were not tried.
struct TorchFacts {
  std::string asked{};    // the Python's name
  std::string python{};   // its path and version; empty: it did not start
  std::string torch{};    // version
  std::string backend{};  // version of clustar_torch
  std::string file{};     // of clustar_torch
  std::string failed{};   // "python", "torch", "distributed", "missing", "import" or "group"; empty: nothing
  std::string why{};
  std::string own_version{};  // of this command
  std::string beside{};       // the folder of a clustar_torch of this installation; empty: it has none
};

std::vector<Check> torch_checks(const TorchFacts& facts);
std::string to_text(const TorchFacts& facts, const std::vector<Check>& checks);
// {python, torch, backend, file (null: not found)}, and the checks.
nlohmann::json to_json(const TorchFacts& facts, const std::vector<Check>& checks);

}  // namespace clustar::bench::doctor
