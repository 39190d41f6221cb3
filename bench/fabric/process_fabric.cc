#include "bench/fabric/process_fabric.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <optional>

#include "bench/fabric/fabric.h"

namespace clustar::bench::fabric {
namespace {

// Nothing for other fabrics.
std::optional<pid_t> maker_of(std::string_view name, std::string_view prefix) {
  if (!name.starts_with(prefix) || name.substr(prefix.size()).substr(0, 1) != "-") return std::nullopt;
  pid_t pid = 0;
  const char* const from = name.data() + prefix.size() + 1;
  const char* const end = name.data() + name.size();
  const auto [rest, error] = std::from_chars(from, end, pid);
  if (error != std::errc() || rest != end || pid <= 0) return std::nullopt;
  return pid;
}

}  // namespace

std::string process_fabric_name(std::string_view prefix) { return fmt::format("{}-{}", prefix, getpid()); }

std::vector<std::string> remove_orphans(std::string_view prefix) {
  std::vector<std::string> problems;
  for (const std::string& name : Fabric::names()) {
    const auto maker = maker_of(name, prefix);
    if (!maker || kill(*maker, 0) == 0 || errno != ESRCH) continue;
    const auto removed = Fabric::remove(name);
    if (!removed) problems.push_back(removed.error().message);
  }
  return problems;
}

}  // namespace clustar::bench::fabric
