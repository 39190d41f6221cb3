#include "bench/ab/suite/route_rto.h"

#include <fmt/format.h>
#include <unistd.h>

#include <sstream>

#include "bench/lossy/tool.h"

namespace clustar::bench::ab::suite {
namespace {

constexpr const char* kPackage = "iproute2";

}  // namespace

bool kernel_has_rto_sysctl() { return access("/proc/sys/net/ipv4/tcp_rto_min_us", F_OK) == 0; }

std::string route_changes(const std::string& shown, std::uint32_t rto_min_us) {
  std::string changes;
  std::istringstream lines(shown);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string route;
    for (std::string word; words >> word;) {
      // What `ip` says of a route, but does not take.
      if (word == "linkdown" || word == "dead") continue;
      if (word == "rto_min") {
        if (words >> word && word == "lock") words >> word;
        continue;
      }
      route += " " + word;
    }
    if (route.empty()) continue;
    changes += "route change" + route;
    if (rto_min_us > 0) changes += fmt::format(" rto_min {}ms", (rto_min_us + 999) / 1000);
    changes += "\n";
  }
  return changes;
}

Result<void> set_route_rto(const std::string& in_namespace, std::uint32_t rto_min_us) {
  const auto shown = lossy::run_tool({"ip", "-4", "route", "show"}, "", in_namespace, kPackage);
  if (!shown) return tl::unexpected(shown.error());
  const auto done = lossy::run_tool({"ip", "-batch", "-"}, route_changes(*shown, rto_min_us), in_namespace, kPackage);
  if (!done) return tl::unexpected(done.error());
  return {};
}

}  // namespace clustar::bench::ab::suite
