// Packets between hosts of an emulated fabric.
#pragma once

#include <chrono>
#include <optional>

#include "bench/fabric/fabric.h"

namespace clustar::bench::fabric {

// Round trip of an ICMP echo, with a patience of 2 s. (`ping` itself is not on every machine.)
std::optional<std::chrono::steady_clock::duration> ping(const Fabric& fabric, int from, int to);

}  // namespace clustar::bench::fabric
