// Runs a small tool (ip) to its end.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "transport/base/result.h"

namespace clustar::bench::lossy {

// What it wrote to standard output. `arguments[0]` is looked up on PATH and in the sbin folders. In the network
// namespace `in_namespace` ("" = here). kUnavailable when there is no such tool, naming `package`; kSystem when it
// fails or takes longer than `limit`, with what it wrote.
Result<std::string> run_tool(const std::vector<std::string>& arguments, const std::string& input,
                             const std::string& in_namespace, const std::string& package,
                             std::chrono::milliseconds limit = std::chrono::seconds(5));

// Writes /proc/sys/<name with / for .> in the namespace and reads it back; kSystem when it says otherwise,
// kUnavailable when this kernel has none of that name.
Result<void> set_sysctl(const std::string& in_namespace, const std::string& name, const std::string& value);

}  // namespace clustar::bench::lossy
