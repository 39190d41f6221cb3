#include "bench/report/report.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>

#include "transport/base/regular_file.h"

namespace clustar::bench::report {
std::string processor() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown";
}

namespace {

constexpr std::size_t kMostBytes = 256u << 20;  // of a file that is read

std::string first_line(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

nlohmann::json machine() {
  utsname kernel{};
  uname(&kernel);
  const double bytes = static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  return {{"cpu", processor()},
          {"cores", sysconf(_SC_NPROCESSORS_ONLN)},
          {"memory_gb", static_cast<int>(bytes / 1e9 + 0.5)},
          {"kernel", kernel.release},
          {"tcp_congestion_control", first_line("/proc/sys/net/ipv4/tcp_congestion_control")}};
}

tl::unexpected<Error> cannot_write(const std::string& path, int error) {
  return fail(ErrorCode::kSystem, "cannot write '" + path + "': " + std::strerror(error));
}

// Whether a file that standard output goes to has this name, as /dev/stdout: if opened again, it would be written over
// what is in it already.
bool is_standard_output(const std::string& path) {
  struct stat named {};
  struct stat output {};
  return stat(path.c_str(), &named) == 0 && fstat(STDOUT_FILENO, &output) == 0 && S_ISREG(output.st_mode) &&
         named.st_dev == output.st_dev && named.st_ino == output.st_ino;
}

Result<void> write_to_standard_output(const std::string& text) {
  std::cout << text << std::flush;
  if (std::cout) return {};
  return fail(ErrorCode::kSystem, std::string("cannot write to standard output: ") + std::strerror(errno));
}

Result<void> write_directly(const std::string& text, const std::string& path) {
  if (is_standard_output(path)) return write_to_standard_output(text);
  std::ofstream out(path);
  out << text;
  out.close();
  if (out) return {};
  return cannot_write(path, errno);
}

// Whether a file of that name may take the place of what is there: nothing yet, or an own, plain file that nothing else
// names. Links and devices stay what they are, and who may write to a file may not give it to another owner.
bool replaceable(const std::string& path, struct stat& there) {
  if (lstat(path.c_str(), &there) != 0) {
    there.st_mode = 0;
    return errno == ENOENT;
  }
  return S_ISREG(there.st_mode) && there.st_nlink == 1 && there.st_uid == geteuid() && access(path.c_str(), W_OK) == 0;
}

// 0 or errno.
int write_all(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(file, text.data(), text.size());
    if (written < 0 && errno != EINTR) return errno;
    if (written > 0) text.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

}  // namespace

nlohmann::json envelope(const std::string& command, nlohmann::json results) {
  return {{"command", command}, {"version", CLUSTAR_VERSION}, {"machine", machine()}, {"results", std::move(results)}};
}

std::string shell_word(const std::string& word) {
  const auto plain = [](unsigned char c) { return std::isalnum(c) != 0 || std::strchr("-._/=,:+@%", c) != nullptr; };
  if (!word.empty() && std::all_of(word.begin(), word.end(), plain)) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::string command_line() {
  std::ifstream in("/proc/self/cmdline", std::ios::binary);
  std::string text;
  for (std::string word; std::getline(in, word, '\0');) text += (text.empty() ? "" : " ") + shell_word(word);
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
  if (path == "-") return write_to_standard_output(text);
  struct stat there {};
  if (!replaceable(path, there)) return write_directly(text, path);
  // Of a process that was killed a file of this name may be left.
  const std::string part = path + "." + std::to_string(getpid()) + ".part";
  unlink(part.c_str());
  const int file = open(part.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (file < 0) return write_directly(text, path);  // the folder may be closed where the file is not
  const bool alike = there.st_mode == 0 || (fchown(file, static_cast<uid_t>(-1), there.st_gid) == 0 &&
                                            fchmod(file, there.st_mode & 07777) == 0);
  int error = write_all(file, text);
  if (close(file) != 0 && error == 0) error = errno;
  if (error == 0 && alike && rename(part.c_str(), path.c_str()) == 0) return {};
  unlink(part.c_str());
  // A full disk: what was there is better than a part of what was to come. Otherwise only the name could not be had, as
  // that of a file which is a mount.
  return error != 0 ? cannot_write(path, error) : write_directly(text, path);
}

Result<void> write_json(const nlohmann::json& document, const std::string& path) {
  // Names of files and jobs may be in any encoding.
  return write_text(document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n", path);
}

Result<std::string> read_text(const std::string& path) {
  const auto cannot = [&](const std::string& why) {
    return fail(ErrorCode::kInvalidArgument, "cannot read '" + path + "': " + why);
  };
  auto file = RegularFile::open(path);
  if (!file) return cannot(file.error().message);
  std::string text;
  std::array<std::byte, 1 << 16> buffer;
  while (text.size() <= kMostBytes) {
    const auto got = file->read(buffer);
    if (!got) return cannot(got.error().message);
    if (*got == 0) return text;
    text.append(reinterpret_cast<const char*>(buffer.data()), *got);
  }
  return cannot("it is larger than 256 MiB");
}

}  // namespace clustar::bench::report
