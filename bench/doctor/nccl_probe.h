// Asks the loader, the plugin and the kernel what nccl_facts.h has.
#pragma once

#include <string>
#include <vector>

#include "bench/doctor/nccl_facts.h"
#include "bench/doctor/nccl_names.h"

namespace clustar::bench::doctor {

// Opens the names in their order as NCCL does, until one can be opened, in a process of its own. `folders`: where files
// that cannot be opened may lie (of LD_LIBRARY_PATH).
Search search(Role role, const std::string& entry, const std::vector<std::string>& names,
              const std::vector<std::string>& folders);

// What the plugin says at its start, in a process of its own, with the variables in its environment.
Banner ask_banner(const std::string& path, const NcclVariables& variables);

}  // namespace clustar::bench::doctor
