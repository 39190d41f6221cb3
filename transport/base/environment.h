// What the process was started with, for Config and for those who must put something before it.
#pragma once

#include <map>
#include <string>

namespace clustar {

// The variables that may mean us: CLUSTAR_*, NCCL_*, and FI_CLUSTAR_* of the libfabric provider.
std::map<std::string, std::string> environment_that_may_mean_us();

}  // namespace clustar
