#include "bench/report/report.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <system_error>

namespace clustar::bench::report {
namespace {

std::string first_line(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

std::string cpu_model() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown";
}

nlohmann::json machine() {
  utsname kernel{};
  uname(&kernel);
  const double bytes = static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  return {{"cpu", cpu_model()},
          {"cores", sysconf(_SC_NPROCESSORS_ONLN)},
          {"memory_gb", static_cast<int>(bytes / 1e9 + 0.5)},
          {"kernel", kernel.release},
          {"tcp_congestion_control", first_line("/proc/sys/net/ipv4/tcp_congestion_control")}};
}

}  // namespace

nlohmann::json envelope(const std::string& command, nlohmann::json results) {
  return {{"command", command}, {"version", CLUSTAR_VERSION}, {"machine", machine()}, {"results", std::move(results)}};
}

std::string command_line() {
  std::ifstream in("/proc/self/cmdline", std::ios::binary);
  std::string text;
  for (std::string word; std::getline(in, word, '\0');) text += (text.empty() ? "" : " ") + word;
  return text;
}

Result<void> check_writable(const std::string& path) {
  if (path.empty() || path == "-") return {};
  std::error_code unknown;
  const bool is_new = std::filesystem::symlink_status(path, unknown).type() == std::filesystem::file_type::not_found;
  if (std::ofstream(path, std::ios::app)) {
    // An interrupt before the results are there must not leave a file without any.
    if (is_new) std::filesystem::remove(path, unknown);
    return {};
  }
  return fail(ErrorCode::kInvalidArgument, "cannot write '" + path + "': " + std::strerror(errno));
}

Result<void> write_text(const std::string& text, const std::string& path) {
  if (path == "-") {
    std::cout << text << std::flush;
    if (std::cout) return {};
    return fail(ErrorCode::kSystem, std::string("cannot write to standard output: ") + std::strerror(errno));
  }
  std::ofstream out(path);
  out << text;
  out.close();
  if (out) return {};
  return fail(ErrorCode::kSystem, "cannot write '" + path + "': " + std::strerror(errno));
}

Result<void> write_json(const nlohmann::json& document, const std::string& path) {
  return write_text(document.dump(2) + "\n", path);
}

}  // namespace clustar::bench::report
