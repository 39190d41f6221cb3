#include "bench/ab/cluster/program.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <sstream>

#include "transport/base/file_descriptor.h"

extern char** environ;

namespace clustar::bench::ab::cluster {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kTickMs = 50;
constexpr std::size_t kMaxLine = 64u << 20;  // a run's results are one
constexpr std::size_t kLastWords = 8192;
// What it started may hold its pipes open after it; a killed one ends as soon as the kernel lets go of it.
constexpr std::chrono::seconds kAfterwards{1};
constexpr std::chrono::seconds kKilled{10};

struct Pipe {
  FileDescriptor ours, its;
};

Result<Pipe> make_pipe() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) {
    return fail(ErrorCode::kSystem, fmt::format("cannot make a pipe: {}", std::strerror(errno)));
  }
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  return Pipe{FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> all;
  for (std::string& text : texts) all.push_back(text.data());
  all.push_back(nullptr);
  return all;
}

class Program {
 public:
  explicit Program(const ProgramOptions& options) : options_(options) {}
  ~Program() { end(); }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  Result<void> start();
  ProgramEnd run();

 private:
  bool running() {
    if (pid_ <= 0 || status_) return false;
    int status = 0;
    if (waitpid(pid_, &status, WNOHANG) == pid_) status_ = status;
    return !status_;
  }
  void listen(int milliseconds);
  // False at its end.
  bool drain(FileDescriptor& from, std::string& unread, bool is_output);
  void keep(const std::string& line);
  void listen_while_running(std::chrono::milliseconds limit);
  void end();

  const ProgramOptions& options_;
  pid_t pid_ = -1;
  std::optional<int> status_;  // of waitpid
  FileDescriptor output_, errors_;
  std::string unread_output_, unread_errors_;
  std::string last_words_;
};

Result<void> Program::start() {
  auto output = make_pipe();
  if (!output) return tl::unexpected(output.error());
  auto errors = make_pipe();
  if (!errors) return tl::unexpected(errors.error());
  // All that allocates comes before the fork.
  std::vector<std::string> words = options_.words;
  std::vector<std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (options_.environment.count(text.substr(0, text.find('='))) == 0) variables.push_back(text);
  }
  for (const auto& [name, value] : options_.environment) variables.push_back(name + "=" + value);
  const std::vector<char*> argv = pointers(words);
  const std::vector<char*> envp = pointers(variables);
  const FileDescriptor nothing(open("/dev/null", O_RDONLY | O_CLOEXEC));
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ < 0) return fail(ErrorCode::kSystem, fmt::format("cannot fork: {}", std::strerror(errno)));
  if (pid_ == 0) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(127);
    dup2(nothing.fd(), STDIN_FILENO);
    dup2(output->its.fd(), STDOUT_FILENO);
    dup2(errors->its.fd(), STDERR_FILENO);
    execvpe(argv[0], argv.data(), envp.data());
    dprintf(STDERR_FILENO, "cannot start %s: %s\n", argv[0], strerror(errno));
    _exit(127);
  }
  output_ = std::move(output->ours);
  errors_ = std::move(errors->ours);
  return {};
}

void Program::keep(const std::string& line) {
  if (line.find_first_not_of(" \t\r-") == std::string::npos) return;  // frames of help texts
  last_words_ += line + "\n";
  if (last_words_.size() > kLastWords)
    last_words_.erase(0, last_words_.find('\n', last_words_.size() - kLastWords) + 1);
}

bool Program::drain(FileDescriptor& from, std::string& unread, bool is_output) {
  std::array<char, 65536> block;
  for (;;) {
    const ssize_t n = read(from.fd(), block.data(), block.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return true;
    if (n > 0) unread.append(block.data(), static_cast<std::size_t>(n));
    const bool over = n <= 0 || unread.size() > kMaxLine;
    if (over && !unread.empty() && unread.back() != '\n') unread += '\n';
    std::size_t at = 0;
    for (std::size_t stop; (stop = unread.find('\n', at)) != std::string::npos; at = stop + 1) {
      const std::string line = unread.substr(at, stop - at);
      if (!is_output || !options_.on_line || !options_.on_line(line)) keep(line);
    }
    unread.erase(0, at);
    if (over) return false;
  }
}

void Program::listen(int milliseconds) {
  std::array<pollfd, 2> polled{{{output_.fd(), POLLIN, 0}, {errors_.fd(), POLLIN, 0}}};  // -1 is left out
  if (poll(polled.data(), polled.size(), milliseconds) <= 0) return;
  if (polled[0].revents != 0 && !drain(output_, unread_output_, true)) output_ = FileDescriptor();
  if (polled[1].revents != 0 && !drain(errors_, unread_errors_, false)) errors_ = FileDescriptor();
}

void Program::listen_while_running(std::chrono::milliseconds limit) {
  const Clock::time_point until = Clock::now() + limit;
  while (running() && Clock::now() < until) listen(10);
}

void Program::end() {
  if (!running()) return;
  kill(pid_, SIGTERM);
  listen_while_running(options_.patience);
  if (!running()) return;
  kill(-pid_, SIGKILL);
  kill(pid_, SIGKILL);
  listen_while_running(kKilled);
}

ProgramEnd Program::run() {
  ProgramEnd result;
  const Clock::time_point begin = Clock::now();
  while (running()) {
    result.interrupted = options_.interrupted ? options_.interrupted() : 0;
    result.over_time = options_.limit.count() > 0 && Clock::now() - begin > options_.limit;
    if (result.interrupted == 0 && !result.over_time) {
      listen(kTickMs);
      continue;
    }
    end();
    break;
  }
  const Clock::time_point until = Clock::now() + kAfterwards;
  while ((output_.fd() >= 0 || errors_.fd() >= 0) && Clock::now() < until) listen(10);
  const int status = status_.value_or(0);
  result.status = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
  result.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  result.last_words = last_words_;
  return result;
}

}  // namespace

bool on_path(const std::string& program) {
  const char* const path = std::getenv("PATH");
  std::istringstream folders(path != nullptr ? path : "");
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (access((folder + "/" + program).c_str(), X_OK) == 0) return true;
  }
  return false;
}

Result<ProgramEnd> run_program(const ProgramOptions& options) {
  Program program(options);
  if (const auto ok = program.start(); !ok) return tl::unexpected(ok.error());
  return program.run();
}

}  // namespace clustar::bench::ab::cluster
