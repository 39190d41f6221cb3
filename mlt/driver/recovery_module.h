// How a module offers another recovery than MLT's own (libclustar-compare.so).
#pragma once

#include <memory>

#include "mlt/core/recovery.h"
#include "transport/base/config.h"
#include "transport/base/result.h"

namespace clustar::mlt::driver {

// By ModuleEntry::find. The one that the settings ask for; it ends before the module is closed.
inline constexpr const char* kOpenRecovery = "open_recovery";
using OpenRecovery = Result<std::unique_ptr<Recovery>> (*)(const Config& config);

}  // namespace clustar::mlt::driver
