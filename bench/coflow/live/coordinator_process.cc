#include "bench/coflow/live/coordinator_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

namespace clustar::bench::coflow::live {

Result<void> CoordinatorProcess::start() {
  const std::string listen = address();
  const pid_t pid = fork();
  if (pid < 0) return fail(ErrorCode::kSystem, "fork failed");
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)signal(SIGINT, SIG_IGN);
    if (!fabric_.enter_process(kHost)) _exit(1);
    // What it says on standard output is for those who do not know its port.
    if (const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC); nowhere >= 0) (void)dup2(nowhere, STDOUT_FILENO);
    // The fabric is nobody else's: no key.
    execl("/proc/self/exe", "clustar", "coordinator", "--listen", listen.c_str(), "--no-key", "--policy",
          policy_.c_str(), "--log-level", "error", static_cast<char*>(nullptr));
    _exit(1);
  }
  process_.emplace(pid);
  return {};
}

Result<void> CoordinatorProcess::look(TimePoint elapsed) {
  if (process_) {
    const std::string how = process_->ended(std::chrono::milliseconds(0));
    if (!how.empty()) return fail(ErrorCode::kRemote, fmt::format("the coordinator {}", how));
  }
  if (!dies_ || elapsed < TimePoint{}) return {};
  const Duration into = (elapsed - TimePoint{}) % kEvery;
  const bool away = into >= kDiesAt && into < kDiesAt + kAway;
  if (away && process_) process_.reset();
  if (!away && !process_) return start();
  return {};
}

}  // namespace clustar::bench::coflow::live
