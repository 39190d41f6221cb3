// The daemon without the rest of `clustar`, which sanitizers would have to build for it: some of its options, as
// `clustar coordinator` has them.
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

#include "coflow/control/daemon/options.h"

int main(int argc, char** argv) {
  std::map<std::string, std::string> given;
  clustar::coflow::control::DaemonOptions options;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--no-key" || name == "--http-anyone") {
      (name == "--no-key" ? options.no_key : options.http_anyone) = true;
    } else if (i + 1 < argc) {
      given[name] = argv[++i];
    }
  }
  const auto take = [&](const char* name, std::string& into) {
    if (const auto found = given.find(name); found != given.end()) into = found->second;
  };
  std::string interval = "100", lease = "3", agents = "16384";
  take("--listen", options.listen);
  take("--http", options.http);
  take("--key-file", options.key_file);
  take("--standby-of", options.coordinator.standby_of);
  take("--interval", interval);
  take("--lease-intervals", lease);
  take("--agents", agents);
  options.verbosity = clustar::coflow::control::Verbosity::kDebug;
  options.coordinator.interval = std::chrono::milliseconds(std::atoi(interval.c_str()));
  options.coordinator.lease_intervals = std::atoi(lease.c_str());
  options.coordinator.most_agents = static_cast<std::size_t>(std::atoi(agents.c_str()));
  const auto ran = clustar::coflow::control::run_daemon(options, [](const std::string& ports) {
    std::puts(ports.c_str());
    std::fflush(stdout);
  });
  if (!ran) std::fprintf(stderr, "clustar coordinator: %s\n", ran.error().message.c_str());
  return ran ? 0 : ran.error().code == clustar::ErrorCode::kInvalidArgument ? 2 : 1;
}
