// A process that measures: one rank of one arm. It does what the coordinator asks over its control connection and
// sleeps in between, so that it does not disturb the arm that is being measured.
#pragma once

#include <optional>

#include "bench/perf/wire.h"

namespace clustar::bench::perf {

// The descriptor that carries the control connection of a spawned worker.
inline constexpr int kControlFd = 3;
// What process lists show.
inline constexpr const char* kProcessName = "clustar-perf";

// Without a plugin it is an end of a limit, TCP or UDP as its coordinator says. Returns the exit status. Ends when the
// control connection does.
int run_worker(const std::optional<PluginSpec>& plugin);

}  // namespace clustar::bench::perf
