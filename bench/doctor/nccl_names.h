// Which files NCCL tries to open as its plugins: NCCL 2.28.9, src/plugin/plugin_open.cc and net.cc. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace clustar::bench::doctor {

enum class Role { kNet, kProfiler, kTuner };

const char* variable_of(Role role);  // "NCCL_NET_PLUGIN", ...

// Whether NCCL takes no external plugin for that value of NCCL_NET_PLUGIN: "none", in either case, or an empty list.
bool takes_none(const std::optional<std::string>& value);

// The entries of NCCL_NET_PLUGIN, in the order in which NCCL tries them; libnccl-net.so when it is not set. Names of
// 255 bytes and more are left out, and so is what is behind the 14th, as NCCL does.
std::vector<std::string> net_entries(const std::optional<std::string>& value);

// What NCCL gives to dlopen, in this order, for an entry or the value of NCCL_PROFILER_PLUGIN or NCCL_TUNER_PLUGIN: the
// value itself; then, if it is neither a path nor named lib*.so, libnccl-<role>-<value>.so. Empty: libnccl-<role>.so.
std::vector<std::string> file_names(Role role, const std::string& entry);

// Whether NCCL takes the entry for the program itself instead of a file: STATIC_PLUGIN, or a beginning of it.
bool is_static_plugin(const std::string& entry);

// What NCCL_PROTO allows of LL128: "^LL128" and "Simple" exclude it. Nothing if the value is of a form per collective,
// which is not judged here.
std::optional<bool> allows_ll128(const std::string& nccl_proto);

}  // namespace clustar::bench::doctor
