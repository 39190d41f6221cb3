// Calls of a plugin's table as NCCL's proxy makes them. Registered at run time: the plugin is an option.
#pragma once

#include <string>

namespace clustar::bench::micro {

// What fails ends that benchmark with its text, and sets `failed`, which outlives the run.
void register_plugin_benchmarks(const std::string& plugin, bool& failed);
void register_poller_benchmarks(const std::string& plugin, bool& failed);
void register_connection_benchmarks(const std::string& plugin, bool& failed);

}  // namespace clustar::bench::micro
