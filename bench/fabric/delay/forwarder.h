// Propagation delay where the kernel has no netem: one process per fabric, named clustar-delay, in the wire namespace.
// It takes each packet from one half of a cut cable and puts it on the other half a fixed time later.
#pragma once

#include <string>
#include <vector>

#include "bench/fabric/delay/wire.h"
#include "transport/base/result.h"

namespace clustar::bench::fabric {

inline constexpr const char* kForwarderCommand = "clustar-delay";

// Starts it for these cables, and returns when it forwards; kSystem when it does not within 5 s. It is a fork without
// exec, since any program may make a fabric; it leaves the caller's files, terminal and signals, and outlives the
// caller. It ends by a signal, and by itself when the halves or the namespace's name are gone.
Result<void> start_forwarder(const std::string& fabric, const std::vector<WireCable>& cables);

// What it has counted, from the file it shares (/run/clustar/fabric-NAME.delay); nothing without that.
std::vector<DelayTraffic> read_forwarder(const std::string& fabric, const std::vector<WireCable>& cables);
std::string forwarder_file(const std::string& fabric);

}  // namespace clustar::bench::fabric
