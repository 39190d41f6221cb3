// Makes a fabric out of nothing, in a fixed order; cleaning up after a failure is the caller's.
#pragma once

#include <string>

#include "bench/fabric/spec.h"
#include "bench/fabric/tool.h"
#include "transport/base/result.h"

namespace clustar::bench::fabric {

// Namespaces, bridge, cables, addresses, offloads, queues. `spec` is checked(), and nothing of its name exists.
Result<void> build(const FabricSpec& spec, const Tools& tools);

// The lines for `tc -batch` that give `interface` a line of the spec's rate behind a queue of `queue_bytes`.
std::string queue_lines(const std::string& interface, const FabricSpec& spec, std::uint64_t queue_bytes);
// The lines for `ip -batch` in the switch's namespace: a bridge, and a cable to each host.
std::string cable_lines(const FabricSpec& spec);

}  // namespace clustar::bench::fabric
