#include "bench/lossy/tool.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <thread>

#include "bench/fabric/namespaces.h"
#include "bench/proxy/socket_io.h"
#include "transport/base/file_descriptor.h"

extern char** environ;

namespace clustar::bench::lossy {
namespace {

using SteadyClock = std::chrono::steady_clock;

std::string path_of(const std::string& tool) {
  for (const char* folder : {"/usr/sbin/", "/sbin/", "/usr/bin/", "/bin/"}) {
    if (access((folder + tool).c_str(), X_OK) == 0) return folder + tool;
  }
  return "";
}

// Output and error stream to `out` until it ends or `until`.
bool collect(int fd, std::string& out, SteadyClock::time_point until) {
  std::array<char, 4096> buffer;
  while (proxy::wait_for(fd, POLLIN, until)) {
    const ssize_t n = read(fd, buffer.data(), buffer.size());
    if (n == 0) return true;
    if (n > 0) out.append(buffer.data(), static_cast<std::size_t>(n));
    if (n < 0 && errno != EINTR) return true;
  }
  return false;
}

// The status that it ends with; killed when it has not ended by `until`, though it has closed its output.
int wait_for(pid_t pid, SteadyClock::time_point until) {
  int status = 0;
  while (waitpid(pid, &status, WNOHANG) == 0) {
    if (SteadyClock::now() > until) kill(pid, SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return status;
}

Result<std::string> run_here(const std::string& path, const std::vector<std::string>& arguments,
                             const std::string& input, std::chrono::milliseconds limit) {
  int in[2], out[2];
  if (pipe2(in, O_CLOEXEC) != 0) return fail(ErrorCode::kSystem, std::strerror(errno));
  const FileDescriptor in_read(in[0]);
  FileDescriptor in_write(in[1]);
  if (pipe2(out, O_CLOEXEC) != 0) return fail(ErrorCode::kSystem, std::strerror(errno));
  const FileDescriptor out_read(out[0]);
  FileDescriptor out_write(out[1]);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in_read.fd(), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out_write.fd(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out_write.fd(), STDERR_FILENO);
  std::vector<std::string> words = arguments;
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  pid_t pid = -1;
  const int error = posix_spawn(&pid, path.c_str(), &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return fail(ErrorCode::kSystem, fmt::format("cannot start {}: {}", path, std::strerror(error)));
  out_write.close();
  // Less than a pipe holds, so this does not block.
  if (write(in_write.fd(), input.data(), input.size()) < 0 && errno != EPIPE) kill(pid, SIGKILL);
  in_write.close();
  std::string text;
  const auto until = SteadyClock::now() + limit;
  if (!collect(out_read.fd(), text, until)) kill(pid, SIGKILL);
  const int status = wait_for(pid, until);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return text;
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return fail(ErrorCode::kSystem, fmt::format("{} failed: {}", fmt::join(arguments, " "), text));
}

}  // namespace

Result<std::string> run_tool(const std::vector<std::string>& arguments, const std::string& input,
                             const std::string& in_namespace, const std::string& package,
                             std::chrono::milliseconds limit) {
  const std::string path = path_of(arguments.front());
  if (path.empty()) {
    return fail(ErrorCode::kUnavailable,
                fmt::format("there is no '{}' here; install the package {}", arguments.front(), package));
  }
  if (in_namespace.empty()) return run_here(path, arguments, input, limit);
  std::string text;
  const auto done = fabric::run_inside(in_namespace, [&]() -> Result<void> {
    auto ran = run_here(path, arguments, input, limit);
    if (!ran) return tl::unexpected(ran.error());
    text = std::move(*ran);
    return {};
  });
  if (!done) return tl::unexpected(done.error());
  return text;
}

Result<void> set_sysctl(const std::string& in_namespace, const std::string& name, const std::string& value) {
  return fabric::run_inside(in_namespace, [&]() -> Result<void> {
    // The kernel shows each thread the values of the network namespace that it is in.
    std::string path = "/proc/sys/" + name;
    std::replace(path.begin() + 10, path.end(), '.', '/');
    if (access(path.c_str(), F_OK) != 0) {
      return fail(ErrorCode::kUnavailable, fmt::format("this kernel has no sysctl {}", name));
    }
    std::ofstream(path) << value << std::flush;
    std::ifstream in(path);
    std::string found{std::istreambuf_iterator<char>(in), {}};
    while (!found.empty() && found.back() == '\n') found.pop_back();
    std::replace(found.begin(), found.end(), '\t', ' ');
    if (found == value) return {};
    return fail(ErrorCode::kSystem,
                fmt::format("cannot set the sysctl {} to '{}' in {}: it is '{}'", name, value, in_namespace, found));
  });
}

}  // namespace clustar::bench::lossy
