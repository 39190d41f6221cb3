#include "bench/coflow/live/coordinator_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "transport/base/file_descriptor.h"

namespace clustar::bench::coflow::live {
namespace {

constexpr int kPatienceMs = 10'000;

}  // namespace

Result<void> CoordinatorProcess::start() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return fail(ErrorCode::kSystem, "pipe failed");
  FileDescriptor hears(ends[0]), says(ends[1]);
  const std::string listen = address();
  const pid_t pid = fork();
  if (pid < 0) return fail(ErrorCode::kSystem, "fork failed");
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)signal(SIGINT, SIG_IGN);
    if (!fabric_.enter_process(kHost)) _exit(1);
    (void)dup2(says.fd(), STDOUT_FILENO);
    // The fabric is nobody else's: no key.
    execl("/proc/self/exe", "clustar", "coordinator", "--listen", listen.c_str(), "--no-key", "--policy",
          options_.policy.c_str(), "--shifts", options_.shifts ? "on" : "off", "--log-level", "error",
          static_cast<char*>(nullptr));
    _exit(1);
  }
  says = FileDescriptor();
  process_.emplace(pid);
  pollfd first{hears.fd(), POLLIN, 0};
  char line = 0;
  if (poll(&first, 1, kPatienceMs) == 1 && read(hears.fd(), &line, 1) == 1) return {};
  const std::string how = process_->ended(std::chrono::milliseconds(100));
  return fail(ErrorCode::kRemote, fmt::format("the coordinator {}", how.empty() ? "does not listen" : how));
}

Result<void> CoordinatorProcess::look(TimePoint elapsed) {
  if (process_) {
    const std::string how = process_->ended(std::chrono::milliseconds(0));
    if (!how.empty()) return fail(ErrorCode::kRemote, fmt::format("the coordinator {}", how));
  }
  if (!options_.dies || elapsed < TimePoint{}) return {};
  const Duration into = (elapsed - TimePoint{}) % kEvery;
  const bool away = into >= kDiesAt && into < kDiesAt + kAway;
  if (away && process_) process_.reset();
  if (!away && !process_) return start();
  return {};
}

}  // namespace clustar::bench::coflow::live
