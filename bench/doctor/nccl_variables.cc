#include "bench/doctor/nccl_variables.h"

#include <fmt/format.h>
#include <pwd.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace clustar::bench::doctor {
namespace {

namespace fs = std::filesystem;

constexpr std::uintmax_t kMostBytes = 1 << 20;

bool is_ours(const std::string& name) {
  return name.starts_with("NCCL_") || name.starts_with("CLUSTAR_") || name == "LD_LIBRARY_PATH";
}

// Nothing is waited for: NCCL reads a pipe or a device to its end, which may never come.
void add(const std::string& path, NcclVariables& variables) {
  std::error_code error;
  const auto status = fs::status(path, error);
  if (!fs::exists(status)) return;
  if (!fs::is_regular_file(status)) return variables.add_unread(path + " is no plain file and was not read");
  if (fs::file_size(path, error) > kMostBytes) {
    return variables.add_unread(path + " is larger than 1 MiB and was not read");
  }
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  variables.add_file(path, text.str());
}

}  // namespace

NcclVariables NcclVariables::of(const std::vector<std::string>& environment) {
  NcclVariables variables;
  for (const std::string& entry : environment) {
    const std::size_t equals = entry.find('=');
    if (equals == std::string::npos || !is_ours(entry.substr(0, equals))) continue;
    variables.values_.insert({entry.substr(0, equals), {entry.substr(equals + 1), "environment"}});
  }
  return variables;
}

void NcclVariables::add_file(const std::string& path, const std::string& text) {
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    const std::size_t equals = line.find('=');
    if (line.starts_with("#") || equals == std::string::npos || equals == 0) continue;
    const std::string name = line.substr(0, equals);
    const auto [at, added] = values_.insert({name, {line.substr(equals + 1), path}});
    if (!added && at->second.text != line.substr(equals + 1)) {
      overruled_.push_back(
          fmt::format("{} in {} does not count: it is '{}' ({})", line, path, at->second.text, at->second.source));
    }
  }
}

std::optional<std::string> NcclVariables::get(const std::string& name) const {
  const auto at = values_.find(name);
  return at == values_.end() ? std::nullopt : std::optional<std::string>(at->second.text);
}

NcclVariables variables_here() {
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) environment.emplace_back(*entry);
  NcclVariables variables = NcclVariables::of(environment);
  std::string own = variables.get("NCCL_CONF_FILE").value_or("");
  if (own.empty()) {
    const passwd* const user = getpwuid(getuid());
    if (user != nullptr && user->pw_dir != nullptr) own = std::string(user->pw_dir) + "/.nccl.conf";
  }
  for (const std::string& path : {own, std::string("/etc/nccl.conf")}) {
    add(path, variables);
  }
  return variables;
}

}  // namespace clustar::bench::doctor
