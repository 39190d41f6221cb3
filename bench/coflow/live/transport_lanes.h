// Lanes over clustar's own transports, each a channel, with the send order that the settings ask for.
#pragma once

#include <memory>

#include "bench/coflow/live/lanes.h"

namespace clustar::bench::coflow::live {

// By this process's settings (CLUSTAR_...). Errors: a setting that makes no sense, no transport.
Result<std::unique_ptr<Lanes>> transport_lanes();

}  // namespace clustar::bench::coflow::live
