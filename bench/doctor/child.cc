#include "bench/doctor/child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <thread>
#include <utility>

namespace clustar::bench::doctor {
namespace {

using std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;

constexpr std::size_t kMaxBytes = 16u << 20;  // of an answer; nobody needs more
constexpr Milliseconds kPause{2};
constexpr Milliseconds kReads{500};  // at least, what is there when the time is over already

// False when the descriptor has ended.
bool take_some(const FileDescriptor& from, std::string& text) {
  std::array<char, 4096> buffer;
  const ssize_t got = read(from.fd(), buffer.data(), buffer.size());
  if (got < 0) return errno == EINTR;
  text.append(buffer.data(), static_cast<std::size_t>(got));
  return got > 0 && text.size() < kMaxBytes;
}

std::string how(int status) {
  if (WIFSIGNALED(status)) return fmt::format("signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status)));
  return WEXITSTATUS(status) == 0 ? std::string() : fmt::format("exit status {}", WEXITSTATUS(status));
}

}  // namespace

Result<Child> Child::start(const std::function<int(int)>& work) {
  int answer[2], errors[2];
  if (pipe2(answer, O_CLOEXEC) != 0) return fail(ErrorCode::kSystem, "pipe: " + describe_errno(errno));
  FileDescriptor answer_read(answer[0]);
  const FileDescriptor answer_write(answer[1]);
  if (pipe2(errors, O_CLOEXEC) != 0) return fail(ErrorCode::kSystem, "pipe: " + describe_errno(errno));
  FileDescriptor errors_read(errors[0]);
  const FileDescriptor errors_write(errors[1]);
  std::fflush(nullptr);  // or the child would write what waits there once more
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) return fail(ErrorCode::kSystem, "fork: " + describe_errno(errno));
  if (pid == 0) {
    // Or what hangs would hang on when we are killed.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    dup2(errors_write.fd(), STDERR_FILENO);
    dup2(errors_write.fd(), STDOUT_FILENO);  // what a library prints is no answer
    // Nothing of the parent's is destroyed here.
    _exit(work(answer_write.fd()));
  }
  return Child(pid, std::move(answer_read), std::move(errors_read));
}

Result<Child> Child::start(const std::vector<std::string>& command) {
  return start([&](int answer) {
    std::vector<std::string> words = command;
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    dup2(answer, STDOUT_FILENO);
    // It asks nobody for a password.
    if (const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC); nothing >= 0) dup2(nothing, STDIN_FILENO);
    execvp(argv[0], argv.data());
    std::fprintf(stderr, "%s: %s\n", argv[0], strerror(errno));
    return 127;
  });
}

Child::Child(pid_t pid, FileDescriptor answer, FileDescriptor errors)
    : pid_(pid), answer_(std::move(answer)), errors_(std::move(errors)) {}

Child::Child(Child&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), answer_(std::move(other.answer_)), errors_(std::move(other.errors_)) {}

Child::~Child() {
  if (pid_ < 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

// Waits for it for `pause` at most; false where nothing came.
bool Child::take_what_is_there(Ended& ended, Milliseconds pause) {
  if (!answer_ && !errors_) {
    std::this_thread::sleep_for(pause);
    return false;
  }
  // A descriptor of -1 is passed over.
  std::array<pollfd, 2> fds = {{{answer_.fd(), POLLIN, 0}, {errors_.fd(), POLLIN, 0}}};
  if (poll(fds.data(), fds.size(), static_cast<int>(pause.count())) <= 0) return false;
  if (fds[0].revents != 0 && !take_some(answer_, ended.answer)) answer_.close();
  if (fds[1].revents != 0 && !take_some(errors_, ended.errors)) errors_.close();
  return true;
}

Child::Ended Child::wait(steady_clock::time_point limit) {
  Ended ended;
  int status = 0;
  pid_t done = 0;
  // Somebody may write without end.
  const auto reads_until = std::max(limit, steady_clock::now() + kReads);
  while (done == 0) {
    // First, so that what it wrote before it ended is read after that. Its own children may keep the pipes open, as
    // ssh's master does.
    done = waitpid(pid_, &status, WNOHANG);
    while (take_what_is_there(ended, done == 0 ? kPause : Milliseconds(0)) && steady_clock::now() < reads_until) {
    }
    if (done == 0 && steady_clock::now() >= limit) {
      ended.why = "no answer in time";
      return ended;  // the destructor ends it
    }
  }
  pid_ = -1;
  ended.why = how(status);
  return ended;
}

std::string last_line(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  const std::size_t at = text.rfind('\n');
  return at == std::string::npos ? text : text.substr(at + 1);
}

}  // namespace clustar::bench::doctor
