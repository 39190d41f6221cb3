// A process on a host: sends and receives the flows that the conductor tells it of.
#pragma once

#include <functional>
#include <memory>

#include "bench/coflow/live/control.h"
#include "bench/coflow/live/lanes.h"

namespace clustar::bench::coflow::live {

// Until the conductor closes its end. The exit status: 0, or 1 after it has told why.
int run_agent(const ControlEnd& conductor, const std::function<Result<std::unique_ptr<Lanes>>()>& make_lanes);

}  // namespace clustar::bench::coflow::live
