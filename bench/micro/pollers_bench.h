// Threads that poll one NIC of a plugin at the same time. Registered at run time: the plugin is an option.
#pragma once

#include <string>

namespace clustar::bench::micro {

// What fails ends that benchmark with its text, and sets `failed`, which outlives the run.
void register_poller_benchmarks(const std::string& plugin, bool& failed);

}  // namespace clustar::bench::micro
