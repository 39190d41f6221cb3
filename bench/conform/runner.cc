#include "bench/conform/runner.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>
#include <optional>

namespace clustar::bench::conform {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

// The parent's ends of everything shared with the child.
class Child {
 public:
  Child() {
    void* memory = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory != MAP_FAILED) board_ = new (memory) Board{};
    output_ = memfd_create("conform-output", MFD_CLOEXEC);
    std::array<int, 2> ends{-1, -1};
    if (pipe2(ends.data(), O_CLOEXEC) == 0) {
      read_end_ = ends[0];
      write_end_ = ends[1];
    }
  }
  ~Child() {
    if (pid_ > 0) {
      kill(-pid_, SIGKILL);
      // Peers of a check that ended early are ours to collect, see PR_SET_CHILD_SUBREAPER.
      for (int tries = 0; tries < 1000 && !reaped_all(); ++tries) usleep(1000);
    }
    for (const int fd : {output_, read_end_, write_end_}) {
      if (fd >= 0) close(fd);
    }
    if (board_ != nullptr) munmap(board_, sizeof(Board));
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  bool valid() const { return board_ != nullptr && read_end_ >= 0; }

  // False when fork failed. Does not return in the child.
  bool start(const std::function<std::string()>& body) {
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    const pid_t parent = getpid();
    pid_ = fork();
    if (pid_ == 0) run(body, parent);
    if (pid_ > 0) setpgid(pid_, pid_);
    close(write_end_);
    write_end_ = -1;
    return pid_ > 0;
  }

  // A verdict, if there is one within `wait`.
  std::optional<Finding> poll_verdict(milliseconds wait) {
    pollfd watched{read_end_, POLLIN, 0};
    if (poll(&watched, 1, static_cast<int>(wait.count())) <= 0) return std::nullopt;
    std::array<char, 4096> buffer{};
    const ssize_t n = read(read_end_, buffer.data(), buffer.size());
    if (n <= 0) {
      usleep(1000);  // all ends are closed; the exit status follows
      return std::nullopt;
    }
    text_.append(buffer.data(), static_cast<std::size_t>(n));
    const auto end = text_.find('\n');
    if (end == std::string::npos) return std::nullopt;
    return Finding{static_cast<Outcome>(text_[0] - '0'), text_.substr(1, end - 1), 0};
  }

  // How the child ended, if it has.
  std::optional<int> poll_exit() {
    int status = 0;
    if (waitpid(pid_, &status, WNOHANG) != pid_) return std::nullopt;
    return status;
  }

  std::string where() const {
    const char* call = board_->call.load();
    const std::string step(board_->step.data());
    std::string text = call != nullptr ? fmt::format("in {}", call) : "between plugin calls";
    if (!step.empty()) text += fmt::format(", while {}", step);
    return text;
  }

  // The end of what the child printed.
  std::string output() const {
    std::string text(64 * 1024, '\0');
    const off_t size = lseek(output_, 0, SEEK_END);
    const off_t from = std::max<off_t>(0, size - static_cast<off_t>(text.size()));
    const ssize_t n = pread(output_, text.data(), text.size(), from);
    text.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
    return text;
  }

  // A sanitizer's summary, when the plugin was built with one and it had something to say; "" otherwise.
  std::string sanitizer_report() const {
    const std::string text = output();
    const auto begin = text.find("SUMMARY: ");
    return begin == std::string::npos ? "" : text.substr(begin, text.find('\n', begin) - begin);
  }

  std::string last_output_line() const {
    std::string text = output();
    while (!text.empty() && text.back() == '\n') text.pop_back();
    return text.substr(text.rfind('\n') == std::string::npos ? 0 : text.rfind('\n') + 1);
  }

 private:
  [[noreturn]] void run(const std::function<std::string()>& body, pid_t parent) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    dup2(nothing, STDIN_FILENO);
    if (output_ >= 0) {
      dup2(output_, STDOUT_FILENO);
      dup2(output_, STDERR_FILENO);
    }
    for (const int fd : {nothing, output_, read_end_}) {
      if (fd > STDERR_FILENO) close(fd);
    }
    enter_check(write_end_, board_);
    write_verdict(Outcome::kPass, body());
    _exit(0);
  }

  bool reaped_all() const {
    pid_t collected;
    do collected = waitpid(-pid_, nullptr, WNOHANG);
    while (collected > 0);
    return collected < 0 && errno == ECHILD;
  }

  Board* board_ = nullptr;
  int output_ = -1, read_end_ = -1, write_end_ = -1;
  pid_t pid_ = -1;
  std::string text_;
};

std::string describe_exit(const Child& child, int status) {
  std::string text = WIFSIGNALED(status)
                         ? fmt::format("crashed with {} {}", signal_name(WTERMSIG(status)), child.where())
                         : fmt::format("the process exited with status {} {}", WEXITSTATUS(status), child.where());
  const std::string output = child.last_output_line();
  if (!output.empty()) text += fmt::format("; last output: {}", output);
  return text;
}

}  // namespace

std::string signal_name(int signal) {
  const char* name = sigabbrev_np(signal);
  return name != nullptr ? fmt::format("SIG{}", name) : fmt::format("signal {}", signal);
}

Finding run_in_child(const std::function<std::string()>& body, milliseconds limit) {
  const auto begin = Clock::now();
  Child child;
  if (!child.valid() || !child.start(body)) {
    return {Outcome::kFail, fmt::format("cannot start a process for the check: {}", std::strerror(errno)), 0};
  }
  Finding finding;
  std::optional<int> status;
  while (true) {
    if (auto verdict = child.poll_verdict(milliseconds(status ? 0 : 5))) {
      finding = *verdict;
      const std::string report = child.sanitizer_report();
      if (finding.outcome == Outcome::kPass && !report.empty()) {
        finding = {Outcome::kFail, "a sanitizer reports: " + report, 0};
      }
      break;
    }
    if (status) {
      finding.reason = describe_exit(child, *status);
      break;
    }
    status = child.poll_exit();
    if (!status && Clock::now() - begin > limit) {
      finding.reason =
          fmt::format("no answer in {:.0f} s, {}", static_cast<double>(limit.count()) / 1e3, child.where());
      break;
    }
  }
  finding.seconds = seconds_since(begin);
  return finding;
}

}  // namespace clustar::bench::conform
