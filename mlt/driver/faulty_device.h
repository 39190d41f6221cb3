// A device that disturbs what it sends, for experiments (CLUSTAR_INJECT_FAULTS, `clustar perf --inject-loss`).
#pragma once

#include "mlt/driver/device.h"
#include "transport/io/decorators/fault_spec.h"

namespace clustar::mlt::driver {

// What `open` opens, with its packets behind a FaultyIo. Devices draw from streams of their own, made of the spec's
// seed, their address and their ports; describe() counts what was done. Errors: those of `open`, and of FaultyIo.
OpenDevice with_faults(OpenDevice open, const io::FaultSpec& spec);

}  // namespace clustar::mlt::driver
