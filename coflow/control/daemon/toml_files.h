// The files that `clustar coordinator` reads, in TOML.
#pragma once

#include <string>
#include <vector>

#include "coflow/control/core/coordinator.h"
#include "transport/base/result.h"

namespace clustar::coflow::control {

// Which hosts hang on which switch, and what its uplinks carry each way:
//    [leaf.rack-1]
//    hosts = ["node-1", "node-2"]
//    uplink_mbps = 200000
// Fills in leaves and uplinks. Errors: "FILE:LINE: what is allowed".
Result<void> read_topology(const std::string& path, CoordinatorOptions& into);

// Options by their names, without "--": texts, numbers and yes or no, or lists of them.
//    listen = "0.0.0.0:7480"
//    tenant = ["research=2", "batch=0.5"]
struct FileOption {
  std::string name{};
  int line = 0;
  bool list = false;
  std::vector<std::string> values{};
};
Result<std::vector<FileOption>> read_option_file(const std::string& path);

}  // namespace clustar::coflow::control
