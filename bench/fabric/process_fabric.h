// Fabrics that live as long as the process that made them: their names say which, so that the next run of the same
// kind removes what a killed one left.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace clustar::bench::fabric {

// "PREFIX-<process id>", of the calling process.
std::string process_fabric_name(std::string_view prefix);
// Removes those of that prefix whose process is gone. What could not be removed, one message each.
std::vector<std::string> remove_orphans(std::string_view prefix);

}  // namespace clustar::bench::fabric
