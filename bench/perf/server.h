// The other host of a measurement: for each arm that a client asks for it starts the receiver here, and hands it the
// client's connection. Which plugins can be loaded is the server's own choice; a client only names an arm.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <string>

#include "bench/perf/wire.h"
#include "transport/base/result.h"

namespace clustar::bench::perf {

struct ServerOptions {
  std::optional<PluginSpec> a;
  std::optional<PluginSpec> b;
  std::string bind = "0.0.0.0";
  int port = 0;
  std::string executable = "/proc/self/exe";
};

// Serves until `stop` (looked at twice a second). `on_event` gets a line when it listens and for each client. Error: it
// cannot listen. Receivers that still run are killed on return.
Result<void> serve(const ServerOptions& options, const std::atomic<bool>& stop,
                   const std::function<void(const std::string&)>& on_event);

}  // namespace clustar::bench::perf
