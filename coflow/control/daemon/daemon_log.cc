#include "coflow/control/daemon/daemon_log.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <ctime>

namespace clustar::coflow::control {

void DaemonLog::write(Verbosity level, const char* name, std::string_view message) const {
  if (level > verbosity_) return;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto second = std::chrono::duration_cast<std::chrono::seconds>(now);
  const auto milliseconds = std::chrono::duration_cast<std::chrono::milliseconds>(now - second).count();
  const std::time_t time = second.count();
  std::tm utc{};
  gmtime_r(&time, &utc);
  const std::string line =
      fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z {} {}\n", utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday,
                  utc.tm_hour, utc.tm_min, utc.tm_sec, milliseconds, name, message);
  // Where nobody reads it, it is lost; there is nobody else to tell.
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}

std::string printable(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c >= ' ' && c <= '~') {
      out += c;
    } else {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    }
  }
  return out;
}

}  // namespace clustar::coflow::control
