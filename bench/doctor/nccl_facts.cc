#include "bench/doctor/nccl_facts.h"

#include <strings.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "bench/doctor/nccl_probe.h"
#include "bench/doctor/ofi_probe.h"
#include "transport/base/own_folder.h"

namespace clustar::bench::doctor {
namespace {

namespace fs = std::filesystem;

// By the rules of the loader: an empty folder is the current one; ';' separates, too.
std::vector<std::string> folders_of(const std::string& path) {
  std::vector<std::string> folders;
  if (path.empty()) return folders;
  std::string one;
  for (const char letter : path + ":") {
    if (letter != ':' && letter != ';') {
      one += letter;
      continue;
    }
    folders.push_back(one.empty() ? "." : one);
    one.clear();
  }
  return folders;
}

std::string real(const std::string& path) {
  std::error_code error;
  const fs::path found = fs::canonical(path, error);
  return error ? path : found.string();
}

std::vector<std::string> strays_of(const std::vector<std::string>& folders, const std::string& taken) {
  std::vector<std::string> strays;
  for (const std::string& folder : folders) {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(folder, error)) {
      const std::string name = entry.path().filename().string();
      const bool plugin = name.starts_with("libnccl-net") && name.ends_with(".so");
      const std::string path = real(entry.path().string());
      if (!plugin || path == taken || std::find(strays.begin(), strays.end(), path) != strays.end()) continue;
      strays.push_back(path);
    }
  }
  std::sort(strays.begin(), strays.end());
  return strays;
}

std::vector<std::string> rdma_devices() {
  std::vector<std::string> devices;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/sys/class/infiniband", error)) {
    devices.push_back(entry.path().filename().string());
  }
  std::sort(devices.begin(), devices.end());
  return devices;
}

// CAP_IPC_LOCK is bit 14: with it the limit does not count.
bool may_lock_anything() {
  std::ifstream in("/proc/self/status");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("CapEff:")) return (std::stoull(line.substr(7), nullptr, 16) >> 14 & 1) != 0;
  }
  return false;
}

std::optional<std::uint64_t> memlock() {
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || may_lock_anything()) return {};
  return limit.rlim_cur;
}

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "?";
}

Search search_role(Role role, const NcclVariables& variables, const std::vector<std::string>& folders) {
  const auto value = variables.get(variable_of(role));
  if (value && strcasecmp(value->c_str(), "none") == 0) return {.entry = *value};
  return search(role, value.value_or(""), file_names(role, value.value_or("")), folders);
}

// The variable that keeps RDMA NICs out, as the plugin reads them; empty: none.
std::string rdma_forbidden_by(const NcclVariables& variables) {
  for (const char* const name : {"CLUSTAR_IB_DISABLE", "NCCL_IB_DISABLE"}) {
    if (const auto value = variables.get(name)) return *value == "0" ? "" : name;
  }
  return {};
}

}  // namespace

const Search* NcclFacts::chosen() const {
  const auto wanted = variables.get("NCCL_NET");
  for (const Search& one : net) {
    if (one.usable() && (!wanted || strcasecmp(wanted->c_str(), one.name.c_str()) == 0)) return &one;
  }
  return nullptr;
}

NcclFacts nccl_facts_here() {
  NcclFacts facts{.host = host_name(), .variables = variables_here()};
  const auto folders = folders_of(facts.variables.get("LD_LIBRARY_PATH").value_or(""));
  const auto value = facts.variables.get(variable_of(Role::kNet));
  for (const std::string& entry : net_entries(value)) {
    if (is_static_plugin(entry)) {
      facts.net.push_back({.entry = entry});
      continue;
    }
    facts.net.push_back(search(Role::kNet, value ? entry : "", file_names(Role::kNet, entry), folders));
  }
  facts.fallback = search(Role::kNet, "", net_entries(std::nullopt), folders);
  facts.profiler = search_role(Role::kProfiler, facts.variables, folders);
  facts.tuner = search_role(Role::kTuner, facts.variables, folders);
  const std::string beside = installed_library("libnccl-net-clustar.so");
  std::error_code error;
  if (fs::exists(beside, error)) facts.beside = real(beside);
  const Search* const chosen = facts.chosen();
  facts.strays = strays_of(folders, chosen == nullptr ? "" : real(chosen->path));
  facts.rdma_devices = rdma_devices();
  facts.memlock_bytes = memlock();
  facts.glibc = glibc_here();
  std::string asked = chosen != nullptr ? chosen->path : facts.beside;
  for (const Search& one : facts.net) {
    if (chosen == nullptr && !one.file.empty()) asked = one.file;
  }
  if (asked.empty()) return facts;
  if (const auto needed = glibc_needed(asked)) {
    facts.needed = *needed;
  } else {
    facts.needed_unknown = needed.error().message;
  }
  // Another's plugin, and one that cannot be opened, say nothing; then the one beside this command does.
  const std::string speaker = chosen != nullptr && chosen->clustar ? chosen->path : facts.beside;
  if (!speaker.empty()) facts.banner = ask_banner(speaker, facts.variables);
  facts.ofi =
      ask_libfabric(facts.variables.get("CLUSTAR_OFI_PROVIDER").value_or(""),
                    facts.variables.get("CLUSTAR_OFI_PROGRESS").value_or("any"), rdma_forbidden_by(facts.variables));
  return facts;
}

}  // namespace clustar::bench::doctor
