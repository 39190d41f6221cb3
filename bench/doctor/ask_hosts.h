// Reports of other hosts, by a command that starts one there.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "bench/doctor/nccl_report.h"

namespace clustar::bench::doctor {

// Runs `launch`, split at spaces and with {host} replaced, then `command`, for all hosts at once; the answer is a JSON
// document with `results`. What does not answer by then is killed, and is a failure of that host.
std::vector<HostReport> ask_hosts(const std::vector<std::string>& hosts, const std::string& launch,
                                  const std::vector<std::string>& command, std::chrono::seconds limit);

// Of a file that `clustar doctor nccl --json` wrote. `from`: what it is called in errors.
HostReport host_report(const std::string& text, const std::string& from);

}  // namespace clustar::bench::doctor
