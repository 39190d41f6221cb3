#include "bench/lossy/report/gnuplot.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "bench/proxy/socket_io.h"
#include "transport/base/file_descriptor.h"

namespace clustar::bench::lossy_report {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kMaxComplaint = 300;  // bytes of its error stream that are kept

// Standard input is a socket, because a child that dies early must not end us by SIGPIPE.
struct Pipes {
  FileDescriptor in, in_child;
  FileDescriptor out, out_child;
  FileDescriptor err, err_child;
};

Result<Pipes> make_pipes() {
  std::array<int, 2> in{}, out{}, err{};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, in.data()) != 0) {
    return fail(ErrorCode::kSystem, fmt::format("no socket pair for gnuplot: {}", strerror(errno)));
  }
  Pipes pipes{.in = FileDescriptor(in[0]),
              .in_child = FileDescriptor(in[1]),
              .out = {},
              .out_child = {},
              .err = {},
              .err_child = {}};
  if (pipe2(out.data(), O_CLOEXEC) != 0) {
    return fail(ErrorCode::kSystem, fmt::format("no pipe for gnuplot: {}", strerror(errno)));
  }
  pipes.out = FileDescriptor(out[0]), pipes.out_child = FileDescriptor(out[1]);
  if (pipe2(err.data(), O_CLOEXEC) != 0) {
    return fail(ErrorCode::kSystem, fmt::format("no pipe for gnuplot: {}", strerror(errno)));
  }
  pipes.err = FileDescriptor(err[0]), pipes.err_child = FileDescriptor(err[1]);
  return pipes;
}

// Killed and waited for when it goes out of scope.
class Child {
 public:
  explicit Child(pid_t pid) : pid_(pid) {}
  ~Child() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    while (waitpid(pid_, &status_, 0) < 0 && errno == EINTR) {
    }
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  bool ended(Clock::time_point until) {
    while (waitpid(pid_, &status_, WNOHANG) == 0) {
      if (Clock::now() > until) return false;
      const timespec pause{0, 1'000'000};
      nanosleep(&pause, nullptr);
    }
    pid_ = -1;
    return true;
  }
  int status() const { return status_; }

 private:
  pid_t pid_;
  int status_ = 0;
};

Result<pid_t> spawn(const GnuplotOptions& options, const Pipes& pipes) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, pipes.in_child.fd(), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, pipes.out_child.fd(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, pipes.err_child.fd(), STDERR_FILENO);
  std::string program = options.program, defaults = "-d", locale = "LC_ALL=C.UTF-8";
  std::array<char*, 3> argv{program.data(), defaults.data(), nullptr};
  std::array<char*, 2> envp{locale.data(), nullptr};
  pid_t pid = -1;
  const int error = posix_spawnp(&pid, program.c_str(), &actions, nullptr, argv.data(), envp.data());
  posix_spawn_file_actions_destroy(&actions);
  if (error == 0) return pid;
  return fail(error == ENOENT ? ErrorCode::kUnavailable : ErrorCode::kSystem,
              error == ENOENT ? fmt::format("there is no '{}' here; install the package gnuplot-nox", program)
                              : fmt::format("cannot start '{}': {}", program, strerror(error)));
}

// Reads what is there. False at the end of the stream.
bool take(const FileDescriptor& fd, std::string& text) {
  std::array<char, 16384> buffer;
  const ssize_t n = read(fd.fd(), buffer.data(), buffer.size());
  if (n > 0) text.append(buffer.data(), static_cast<std::size_t>(n));
  return n > 0 || (n < 0 && errno == EINTR);
}

// Feeds the script and collects both streams until they end. "" or what went wrong.
std::string converse(Pipes& pipes, std::string_view script, const GnuplotOptions& options, Clock::time_point until,
                     std::string& out, std::string& err) {
  while (pipes.out || pipes.err) {
    std::array<pollfd, 3> fds{{{pipes.out.fd(), POLLIN, 0}, {pipes.err.fd(), POLLIN, 0}, {-1, POLLOUT, 0}}};
    if (pipes.in) fds[2].fd = pipes.in.fd();
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now());
    if (left.count() <= 0) return fmt::format("it took longer than {} ms", options.limit.count());
    if (poll(fds.data(), fds.size(), static_cast<int>(left.count())) < 0 && errno != EINTR) return strerror(errno);
    if (pipes.in && fds[2].revents != 0) {
      const ssize_t n = send(pipes.in.fd(), script.data(), script.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n > 0) script.remove_prefix(static_cast<std::size_t>(n));
      const bool gone = n < 0 && errno != EAGAIN && errno != EINTR;
      if (script.empty() || gone) pipes.in.close();
    }
    if (pipes.out && fds[0].revents != 0 && !take(pipes.out, out)) pipes.out.close();
    if (pipes.err && fds[1].revents != 0 && !take(pipes.err, err)) pipes.err.close();
    if (out.size() + err.size() > options.max_output) {
      return fmt::format("it wrote more than {} bytes", options.max_output);
    }
  }
  return "";
}

// One line of what it complained about.
std::string complaint(const std::string& err) {
  std::string line;
  for (const char c : err.substr(0, kMaxComplaint)) line += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  const auto begin = line.find_first_not_of(' ');
  return begin == std::string::npos ? "it said nothing" : line.substr(begin);
}

}  // namespace

Result<std::string> run_gnuplot(const std::string& script, const GnuplotOptions& options) {
  const auto until = Clock::now() + options.limit;
  auto pipes = make_pipes();
  if (!pipes) return tl::unexpected(pipes.error());
  const auto pid = spawn(options, *pipes);
  if (!pid) return tl::unexpected(pid.error());
  Child child(*pid);
  pipes->in_child.close(), pipes->out_child.close(), pipes->err_child.close();
  std::string out, err;
  if (const std::string wrong = converse(*pipes, script, options, until, out, err); !wrong.empty()) {
    return fail(ErrorCode::kSystem, fmt::format("{}: {}, and was ended", options.program, wrong));
  }
  if (!child.ended(until)) {
    return fail(ErrorCode::kSystem,
                fmt::format("{}: it took longer than {} ms, and was ended", options.program, options.limit.count()));
  }
  if (WIFEXITED(child.status()) && WEXITSTATUS(child.status()) == 0) return out;
  return fail(
      ErrorCode::kSystem,
      fmt::format("{} failed ({} {}): {}", options.program, WIFSIGNALED(child.status()) ? "signal" : "exit status",
                  WIFSIGNALED(child.status()) ? WTERMSIG(child.status()) : WEXITSTATUS(child.status()),
                  complaint(err)));
}

}  // namespace clustar::bench::lossy_report
