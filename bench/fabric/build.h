// Makes a fabric out of nothing, in a fixed order; cleaning up after a failure is the caller's.
#pragma once

#include <string>

#include "bench/fabric/spec.h"
#include "bench/fabric/tool.h"
#include "transport/base/result.h"

namespace clustar::bench::fabric {

// Namespaces, cables, switches, addresses and routes, offloads, queues. `spec` is checked(), and nothing of its name
// exists.
// `note`: what it had to do without, and why.
Result<void> build(const FabricSpec& spec, const Tools& tools, const HeldSignals& signals, std::string& note);

}  // namespace clustar::bench::fabric
