// Any transport with GPU memory, emulated, staged around it.
#pragma once

#include <functional>
#include <memory>

#include "transport/api/transport.h"
#include "transport/base/system_clock.h"
#include "transport/staged/staged_transport.h"

namespace clustar::transport::conformance {

std::unique_ptr<Transport> emulated_stage(std::unique_ptr<Transport> inner, Log log,
                                          const std::function<void(staged::Options&)>& change = {});

}  // namespace clustar::transport::conformance
