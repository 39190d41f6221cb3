// What `clustar coordinator` is told, and how it runs.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "coflow/control/core/coordinator.h"
#include "transport/base/result.h"

namespace clustar::coflow::control {

enum class Verbosity : std::uint8_t { kError, kWarn, kInfo, kDebug };

struct DaemonOptions {
  std::string listen = "127.0.0.1:7480";  // ADDRESS:PORT of agents and standbys; port 0: any free one
  std::string http{};                     // of the page; empty: none
  bool http_anyone = false;               // the page may be asked for from other hosts
  std::string key_file{};                 // empty: no key
  bool no_key = false;                    // agents of other hosts are heard without one
  Verbosity verbosity = Verbosity::kInfo;
  CoordinatorOptions coordinator{};  // but for first_term, which is the clock's
};

// Runs until SIGINT or SIGTERM. `ready` is called once with the ports that it has:
// {"listen":"127.0.0.1:7480","http":null}. The log goes to standard error. kInvalidArgument: the options.
Result<void> run_daemon(const DaemonOptions& options, const std::function<void(const std::string&)>& ready);

}  // namespace clustar::coflow::control
