#include "bench/perf/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "bench/perf/worker.h"

extern char** environ;

namespace clustar::bench::perf {

Process::Process(Process&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), status_(std::exchange(other.status_, std::nullopt)) {}

Process& Process::operator=(Process&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(status_, other.status_);
  return *this;
}

bool Process::running() {
  if (pid_ <= 0 || status_) return false;
  int status = 0;
  if (waitpid(pid_, &status, WNOHANG) == pid_) status_ = status;
  return !status_;
}

std::string Process::ended(std::chrono::milliseconds limit) {
  const auto until = Clock::now() + limit;
  while (running()) {
    if (Clock::now() > until) return "";
    const timespec pause{0, 2'000'000};
    nanosleep(&pause, nullptr);
  }
  if (!status_) return "";
  if (WIFSIGNALED(*status_)) {
    return fmt::format("was killed by signal {} ({})", WTERMSIG(*status_), strsignal(WTERMSIG(*status_)));
  }
  return fmt::format("ended with exit status {}", WEXITSTATUS(*status_));
}

void Process::end() {
  if (!running()) return;
  kill(pid_, SIGKILL);
  // A killed process ends as soon as the kernel lets go of it.
  (void)ended(std::chrono::seconds(10));
}

Result<Process> spawn_worker(const std::string& executable, FileDescriptor control,
                             const std::optional<PluginSpec>& plugin) {
  std::vector<std::string> arguments{"clustar", "perf", "--worker"};
  if (plugin) {
    for (const std::string& word :
         {std::string("--plugin"), plugin->path, std::string("--plugin-version"), std::to_string(plugin->version),
          std::string("--device"), std::to_string(plugin->device)}) {
      arguments.push_back(word);
    }
  }
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  std::vector<std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string name(*entry, strcspn(*entry, "="));
    if (!plugin || plugin->environment.count(name) == 0) variables.emplace_back(*entry);
  }
  if (plugin) {
    for (const auto& [name, value] : plugin->environment) variables.push_back(name + "=" + value);
  }
  std::vector<char*> envp;
  for (std::string& variable : variables) envp.push_back(variable.data());
  envp.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  // Also clears close-on-exec when it happens to be that descriptor already.
  posix_spawn_file_actions_adddup2(&actions, control.fd(), kControlFd);
  pid_t pid = -1;
  const int error = posix_spawn(&pid, executable.c_str(), &actions, nullptr, argv.data(), envp.data());
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    return fail(ErrorCode::kSystem, fmt::format("cannot start a worker ({}): {}", executable, std::strerror(error)));
  }
  return Process(pid);
}

}  // namespace clustar::bench::perf
