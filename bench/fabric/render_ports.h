// The switch program's counters as text and as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "bench/fabric/inspect.h"

namespace clustar::bench::fabric {

// A line per port and class that has seen packets, the rules in force, and whether super-packets passed. What keeps
// the buffer where there is no program.
std::string ports_text(const FabricStatus& status);

// null without a program.
nlohmann::json program_json(const SwitchPortStatus& port);

// Packets that stand for many, at all ports, in both directions, since the counters began. 0 without a program.
std::uint64_t super_packets(const FabricStatus& status);

}  // namespace clustar::bench::fabric
