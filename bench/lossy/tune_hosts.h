// What the TCP of all hosts of a fabric has alike, whatever the arm.
#pragma once

#include "bench/fabric/fabric.h"
#include "transport/base/result.h"

namespace clustar::bench::lossy {

// It keeps its window over pauses, learns nothing from other connections and has large buffers. Errors: as
// set_sysctl().
Result<void> tune_tcp(const fabric::Fabric& fabric);

}  // namespace clustar::bench::lossy
