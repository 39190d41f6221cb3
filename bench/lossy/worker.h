// A process that is one host's end of one arm: this executable again, inside the host's network namespace. It does what
// the coordinator asks over its control connection, which does not go through the fabric, and sleeps in between.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "bench/lossy/endpoint.h"

namespace clustar::bench::lossy {

// The descriptor that carries the control connection.
inline constexpr int kControlFd = 3;
// The hidden option of `clustar perf` that makes a worker; its value is the namespace.
inline constexpr const char* kWorkerOption = "--suite-worker";

// Returns the exit status. Ends when the control connection does, and with the coordinator.
int run_worker(const std::string& in_namespace);

nlohmann::json to_json(const Terms& terms);
Terms terms_from(const nlohmann::json& message);  // throws nlohmann's exceptions: only a coordinator of ours sends them

}  // namespace clustar::bench::lossy
