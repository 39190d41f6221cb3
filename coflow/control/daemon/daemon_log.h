// The daemon's log: lines on standard error with UTC time.
#pragma once

#include <string>
#include <string_view>

#include "coflow/control/daemon/options.h"

namespace clustar::coflow::control {

class DaemonLog {
 public:
  explicit DaemonLog(Verbosity verbosity) : verbosity_(verbosity) {}

  void error(std::string_view message) const { write(Verbosity::kError, "error", message); }
  void warn(std::string_view message) const { write(Verbosity::kWarn, "warn", message); }
  void info(std::string_view message) const { write(Verbosity::kInfo, "info", message); }
  void debug(std::string_view message) const { write(Verbosity::kDebug, "debug", message); }
  bool debugs() const { return verbosity_ >= Verbosity::kDebug; }

 private:
  void write(Verbosity level, const char* name, std::string_view message) const;

  const Verbosity verbosity_;
};

// What came over the wire, so that it can neither end a line nor steer a terminal.
std::string printable(std::string_view text);

}  // namespace clustar::coflow::control
