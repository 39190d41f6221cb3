#include "bench/doctor/nccl_names.h"

#include <strings.h>

#include <sstream>

namespace clustar::bench::doctor {
namespace {

constexpr std::size_t kMaxPlugins = 14;  // NCCL's 16, two of which are its own
constexpr std::size_t kMaxName = 254;

const char* prefix_of(Role role) {
  return role == Role::kNet ? "libnccl-net" : role == Role::kProfiler ? "libnccl-profiler" : "libnccl-tuner";
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  // Empty parts are no entries: NCCL splits by strtok_r.
  for (std::string part; std::getline(in, part, ',');) {
    if (!part.empty()) parts.push_back(part);
  }
  return parts;
}

bool same(const std::string& a, const char* b) { return strcasecmp(a.c_str(), b) == 0; }

}  // namespace

const char* variable_of(Role role) {
  return role == Role::kNet        ? "NCCL_NET_PLUGIN"
         : role == Role::kProfiler ? "NCCL_PROFILER_PLUGIN"
                                   : "NCCL_TUNER_PLUGIN";
}

bool takes_none(const std::optional<std::string>& value) {
  return value && (same(*value, "none") || split(*value).empty());
}

std::vector<std::string> net_entries(const std::optional<std::string>& value) {
  if (!value) return {"libnccl-net.so"};
  if (takes_none(value)) return {};
  std::vector<std::string> entries;
  for (std::string& entry : split(*value)) {
    if (entries.size() == kMaxPlugins) break;
    if (entry.size() <= kMaxName) entries.push_back(std::move(entry));
  }
  return entries;
}

std::vector<std::string> file_names(Role role, const std::string& entry) {
  const std::string prefix = prefix_of(role);
  if (entry.empty()) return {prefix + ".so"};
  std::vector<std::string> names = {entry};
  const bool library = entry.starts_with("lib") && entry.ends_with(".so");
  if (entry.find('/') == std::string::npos && !library) names.push_back(prefix + "-" + entry + ".so");
  return names;
}

bool is_static_plugin(const std::string& entry) {
  return !entry.empty() && strncasecmp(entry.c_str(), "STATIC_PLUGIN", entry.size()) == 0;
}

std::optional<bool> allows_ll128(const std::string& nccl_proto) {
  if (nccl_proto.find(':') != std::string::npos || nccl_proto.find(';') != std::string::npos) return std::nullopt;
  const bool excludes = nccl_proto.starts_with("^");
  bool named = false;
  for (const std::string& name : split(excludes ? nccl_proto.substr(1) : nccl_proto)) {
    named = named || same(name, "LL128");
  }
  return named != excludes;
}

}  // namespace clustar::bench::doctor
