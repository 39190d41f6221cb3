#include "bench/fabric/tool.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <utility>

#include "bench/fabric/pidfd.h"

namespace clustar::bench::fabric {
namespace {

constexpr auto kBound = std::chrono::seconds(20);

// Memory with a descriptor: a tool reads and writes it without anybody having to feed or drain a pipe meanwhile.
class MemoryFile {
 public:
  explicit MemoryFile(const std::string& content) : fd_(memfd_create("clustar-fabric", MFD_CLOEXEC)) {
    const bool ok = fd_ >= 0 && write(fd_, content.data(), content.size()) == static_cast<ssize_t>(content.size()) &&
                    lseek(fd_, 0, SEEK_SET) == 0;
    if (!ok) reset();
  }
  ~MemoryFile() { reset(); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  int fd() const { return fd_; }
  std::string content() const {
    std::string text(4096, '\0');
    const ssize_t n = pread(fd_, text.data(), text.size(), 0);
    text.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
    while (text.ends_with('\n')) text.pop_back();
    return text;
  }

 private:
  void reset() {
    if (fd_ >= 0) close(std::exchange(fd_, -1));
  }

  int fd_ = -1;
};

std::string find_on_path(const std::string& tool) {
  const char* path = std::getenv("PATH");
  // Debian's su leaves the sbin folders out, where tc lives.
  std::istringstream folders(std::string(path == nullptr ? "" : path) + ":/usr/sbin:/sbin:/usr/bin:/bin");
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string candidate = folder + "/" + tool;
    if (!folder.empty() && access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return {};
}

// In the child, between fork and exec: async-signal-safe calls only.
[[noreturn]] void become(char* const* argv, int in, int err, int held_fd, pid_t parent) {
  // A parent that is killed takes its tool along; one that died before this line is noticed too.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(125);
  const int null_fd = open("/dev/null", O_WRONLY);
  if (dup2(in, STDIN_FILENO) < 0 || dup2(null_fd, STDOUT_FILENO) < 0 || dup2(err, STDERR_FILENO) < 0) _exit(125);
  if (held_fd >= 0) fcntl(held_fd, F_SETFD, 0);
  execv(argv[0], argv);
  _exit(127);
}

// Waits for the process's end, an interruption or the bound; says why it did not end by itself.
std::string await(int pidfd, const HeldSignals& signals) {
  const auto until = std::chrono::steady_clock::now() + kBound;
  while (true) {
    std::array<pollfd, 2> polled{{{pidfd, POLLIN, 0}, {signals.fd(), POLLIN, 0}}};
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
    if (left.count() <= 0) return fmt::format("did not end within {} s", kBound.count());
    poll(polled.data(), polled.size(), static_cast<int>(left.count()));
    if ((polled[0].revents & POLLIN) != 0) return {};
    if (signals.interrupted()) return "was interrupted";
  }
}

// "RTNETLINK answers: Operation not permitted" and its kind, with what to do about it.
std::string fix_for(const std::string& message, const std::string& needs) {
  if (message.find("not permitted") != std::string::npos || message.find("Permission denied") != std::string::npos) {
    return "root lacks CAP_NET_ADMIN or CAP_SYS_ADMIN here: in a container, start it with --privileged";
  }
  return needs;
}

}  // namespace

Result<Tools> Tools::find(const HeldSignals& signals, int held_fd) {
  Tools tools(signals, held_fd);
  tools.ip_ = find_on_path("ip");
  tools.tc_ = find_on_path("tc");
  if (!tools.ip_.empty() && !tools.tc_.empty()) return tools;
  return fail(ErrorCode::kUnavailable,
              fmt::format("there is no '{}' here; it comes with iproute2: apt-get install iproute2",
                          tools.ip_.empty() ? "ip" : "tc"));
}

Result<ToolOutput> Tools::run(const std::vector<std::string>& arguments, const std::string& input) const {
  const MemoryFile in(input);
  const MemoryFile err("");
  if (in.fd() < 0 || err.fd() < 0) {
    return fail(ErrorCode::kSystem, fmt::format("no memory file: {}", std::strerror(errno)));
  }
  std::vector<std::string> owned = arguments;
  std::vector<char*> argv;
  for (std::string& argument : owned) argv.push_back(argument.data());
  argv.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) return fail(ErrorCode::kSystem, fmt::format("cannot start {}: {}", argv[0], std::strerror(errno)));
  if (pid == 0) become(argv.data(), in.fd(), err.fd(), held_fd_, parent);
  const int pidfd = open_pidfd(pid);
  const std::string why = pidfd < 0 ? std::string("cannot be watched") : await(pidfd, *signals_);
  if (pidfd >= 0) close(pidfd);
  if (!why.empty()) kill(pid, SIGKILL);
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (!why.empty()) return fail(ErrorCode::kSystem, fmt::format("{} {}", arguments[0], why));
  return ToolOutput{WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status), err.content()};
}

Result<void> Tools::batch(const std::string& tool, const std::string& in_namespace, const std::string& lines,
                          const std::string& needs) const {
  if (signals_->interrupted()) return fail(ErrorCode::kSystem, "interrupted");
  std::vector<std::string> arguments{tool};
  if (!in_namespace.empty()) arguments.insert(arguments.end(), {"-n", in_namespace});
  arguments.insert(arguments.end(), {"-batch", "-"});
  const auto output = run(arguments, lines);
  if (!output) return tl::unexpected(output.error());
  if (output->status == 0) return {};
  const std::string said = output->err.empty() ? fmt::format("exit status {}", output->status) : output->err;
  return fail(ErrorCode::kSystem, fmt::format("{} failed: {}\n{}", tool, said, fix_for(said, needs)));
}

Result<void> Tools::ip_batch(const std::string& in_namespace, const std::string& lines,
                             const std::string& needs) const {
  return batch(ip_, in_namespace, lines, needs);
}

Result<void> Tools::tc_batch(const std::string& in_namespace, const std::string& lines,
                             const std::string& needs) const {
  return batch(tc_, in_namespace, lines, needs);
}

}  // namespace clustar::bench::fabric
