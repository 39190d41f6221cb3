#include "bench/trainer/launcher.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "bench/trainer/record.h"

extern char** environ;

namespace clustar::bench::trainer {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kTick{50};  // how often the ranks are looked at when none of them speaks
constexpr std::size_t kMaxLine = 16u << 20;

class Fd {
 public:
  explicit Fd(int fd = -1) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd() { reset(); }
  void reset() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

// Interrupts as readable events, so that they cannot end the launcher before its ranks.
class Signals {
 public:
  explicit Signals(bool take_over) {
    sigset_t taken;
    sigemptyset(&taken);
    pthread_sigmask(SIG_BLOCK, nullptr, &before_);
    if (!take_over) return;
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&taken, signal);
    pthread_sigmask(SIG_BLOCK, &taken, &before_);
    fd_ = Fd(signalfd(-1, &taken, SFD_NONBLOCK | SFD_CLOEXEC));
  }
  ~Signals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  int fd() const { return fd_.get(); }
  const sigset_t& mask_before() const { return before_; }
  // The signal that arrived, or 0.
  int take() {
    signalfd_siginfo info{};
    return read(fd_.get(), &info, sizeof info) == sizeof info ? static_cast<int>(info.ssi_signo) : 0;
  }

 private:
  sigset_t before_{};
  Fd fd_;
};

struct Rank {
  pid_t pid = -1;
  Fd pipe;
  std::string unread;          // the start of a line
  std::optional<int> status;   // of waitpid, once it ended
  std::optional<Error> error;  // what it reported
  bool ended_by_us = false;

  bool running() const { return pid > 0 && !status; }
  bool may_fail = false;
  bool failed() const { return status && *status != 0 && !ended_by_us && !may_fail; }
};

std::vector<std::string> environment_of(const LaunchOptions& options) {
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (options.environment.count(text.substr(0, text.find('='))) == 0) all.push_back(text);
  }
  for (const auto& [name, value] : options.environment) all.push_back(name + "=" + value);
  return all;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> all;
  for (std::string& text : texts) all.push_back(text.data());
  all.push_back(nullptr);
  return all;
}

// Exec arguments and file actions of one spawn.
Result<pid_t> spawn(const LaunchOptions& options, int rank, int pipe_end, const sigset_t& mask) {
  std::vector<std::string> arguments = options.arguments(rank);
  std::vector<std::string> environment = environment_of(options);
  const std::vector<char*> argv = pointers(arguments);
  const std::vector<char*> envp = pointers(environment);
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  // Also clears close-on-exec when the pipe happens to be that descriptor already.
  posix_spawn_file_actions_adddup2(&actions, pipe_end, kReportFd);
  posix_spawnattr_setsigmask(&attributes, &mask);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  pid_t pid = -1;
  const int error = posix_spawn(&pid, options.executable.c_str(), &actions, &attributes, argv.data(), envp.data());
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (error != 0) {
    return fail(ErrorCode::kSystem,
                fmt::format("cannot start rank {} ({}): {}", rank, options.executable, std::strerror(error)));
  }
  return pid;
}

std::string how_it_ended(int rank, const Rank& state) {
  const int status = *state.status;
  if (WIFSIGNALED(status)) {
    return fmt::format("rank {} was killed by signal {} ({})", rank, WTERMSIG(status), strsignal(WTERMSIG(status)));
  }
  if (state.error) {
    return fmt::format("rank {} failed (exit status {}): {}", rank, WEXITSTATUS(status), state.error->message);
  }
  return fmt::format("rank {} ended with exit status {} and no report", rank, WEXITSTATUS(status));
}

class Supervisor {
 public:
  explicit Supervisor(const LaunchOptions& options)
      : options_(options), signals_(!options.stop), ranks_(static_cast<std::size_t>(options.ranks + options.helpers)) {
    for (auto r = static_cast<std::size_t>(options.ranks); r < ranks_.size(); ++r) ranks_[r].may_fail = true;
  }
  ~Supervisor() { end_all(); }
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  Result<void> run() {
    if (auto ok = start_all(); !ok) return ok;
    const Clock::time_point begin = Clock::now();
    std::optional<Clock::time_point> settle_until;
    while (any_rank_running()) {
      listen(kTick);
      if (const int signal = signals_.take()) {
        end_all();
        return fail(ErrorCode::kSystem,
                    fmt::format("interrupted by signal {} ({}); all ranks were ended", signal, strsignal(signal)));
      }
      if (options_.stop && options_.stop()) {
        end_all();
        return fail(ErrorCode::kRemote, "stopped; all ranks were ended");
      }
      reap();
      if (options_.limit.count() > 0 && Clock::now() - begin > options_.limit && !any_failed()) {
        end_all();
        return fail(ErrorCode::kRemote,
                    fmt::format("not done within {} s; all ranks were ended", options_.limit.count() / 1000));
      }
      if (any_failed() && !settle_until) settle_until = Clock::now() + options_.settle;
      if (settle_until && Clock::now() >= *settle_until) end_all();
      if (auto late = check_stragglers(); !late) return late;
    }
    end_helpers();
    return verdict();
  }

 private:
  Result<void> start_all() {
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      std::array<int, 2> ends{};
      if (pipe2(ends.data(), O_CLOEXEC) != 0) {
        return fail(ErrorCode::kSystem, fmt::format("cannot make a pipe for rank {}: {}", r, std::strerror(errno)));
      }
      ranks_[r].pipe = Fd(ends[0]);
      const Fd child_end(ends[1]);
      fcntl(ends[0], F_SETFL, O_NONBLOCK);
      const auto pid = spawn(options_, static_cast<int>(r), ends[1], signals_.mask_before());
      if (!pid) return tl::unexpected(pid.error());
      ranks_[r].pid = *pid;
    }
    return {};
  }

  bool any_running() const {
    return std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.running(); });
  }
  bool any_rank_running() const {
    return std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.running() && !rank.may_fail; });
  }
  // They end with the ranks, unless they stand still.
  void end_helpers() {
    const Clock::time_point patience = Clock::now() + options_.terminate;
    while (any_running() && Clock::now() < patience) {
      listen(std::chrono::milliseconds(10));
      reap();
    }
    end_all();
  }
  bool any_failed() const {
    return std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.failed(); });
  }

  // Waits for something to read or `limit`, and reads it.
  void listen(std::chrono::milliseconds limit) {
    std::vector<pollfd> polled{{signals_.fd(), POLLIN, 0}};
    std::vector<std::size_t> owner{0};
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      if (ranks_[r].pipe.get() < 0) continue;
      polled.push_back({ranks_[r].pipe.get(), POLLIN, 0});
      owner.push_back(r);
    }
    if (poll(polled.data(), polled.size(), static_cast<int>(limit.count())) <= 0) return;
    for (std::size_t i = 1; i < polled.size(); ++i) {
      if (polled[i].revents != 0) drain(owner[i]);
    }
  }

  void drain(std::size_t r) {
    Rank& rank = ranks_[r];
    std::array<char, 65536> block;
    while (rank.pipe.get() >= 0) {
      const ssize_t n = read(rank.pipe.get(), block.data(), block.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && errno == EAGAIN) return;
      if (n <= 0 || rank.unread.size() > kMaxLine) {
        rank.pipe.reset();
        return;
      }
      rank.unread.append(block.data(), static_cast<std::size_t>(n));
      take_lines(r);
    }
  }

  void take_lines(std::size_t r) {
    Rank& rank = ranks_[r];
    std::size_t from = 0;
    for (std::size_t end; (end = rank.unread.find('\n', from)) != std::string::npos; from = end + 1) {
      const auto record = nlohmann::json::parse(rank.unread.begin() + static_cast<std::ptrdiff_t>(from),
                                                rank.unread.begin() + static_cast<std::ptrdiff_t>(end), nullptr, false);
      if (!record.is_object()) continue;
      Error error;
      if (from_record(record, error)) rank.error = std::move(error);
      if (options_.on_record) options_.on_record(static_cast<int>(r), record);
    }
    rank.unread.erase(0, from);
  }

  void reap() {
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      int status = 0;
      if (!ranks_[r].running() || waitpid(ranks_[r].pid, &status, WNOHANG) != ranks_[r].pid) continue;
      ranks_[r].status = status;
      order_.push_back(r);
      drain(r);  // its last words
      if (status == 0 && !first_success_ && !ranks_[r].may_fail) first_success_ = Clock::now();
    }
  }

  Result<void> check_stragglers() {
    if (!first_success_ || any_failed() || !any_rank_running() || Clock::now() < *first_success_ + options_.finish) {
      return {};
    }
    std::string late;
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      if (ranks_[r].running() && !ranks_[r].may_fail) late += fmt::format("{}{}", late.empty() ? "" : ", ", r);
    }
    end_all();
    return fail(ErrorCode::kRemote, fmt::format("rank {} did not end within {} s after the first rank was done", late,
                                                options_.finish.count() / 1000));
  }

  void signal_running(int signal) {
    for (Rank& rank : ranks_) {
      if (!rank.running()) continue;
      rank.ended_by_us = true;
      kill(rank.pid, signal);
    }
  }

  void end_all() {
    reap();  // one that ended by itself must not count as ended by us
    signal_running(SIGTERM);
    const Clock::time_point patience = Clock::now() + options_.terminate;
    while (any_running() && Clock::now() < patience) {
      listen(std::chrono::milliseconds(10));
      reap();
    }
    signal_running(SIGKILL);
    // A killed process ends as soon as the kernel lets go of it; 10 s is for one that hangs in a broken driver.
    const Clock::time_point limit = Clock::now() + std::chrono::seconds(10);
    while (any_running() && Clock::now() < limit) {
      listen(std::chrono::milliseconds(10));
      reap();
    }
  }

  // Names the cause. A rank that lost its peer only passes on what happened to another: it comes last.
  Result<void> verdict() const {
    const auto weight = [](const Rank& rank) {
      if (WIFSIGNALED(*rank.status)) return 0;
      if (!rank.error) return 1;
      return rank.error->code == ErrorCode::kRemote ? 3 : 2;
    };
    std::optional<std::size_t> cause;
    for (const std::size_t r : order_) {
      if (!ranks_[r].failed()) continue;
      if (!cause || weight(ranks_[r]) < weight(ranks_[*cause])) cause = r;
    }
    if (!cause) return {};
    const bool ended = std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.ended_by_us; });
    return fail(ranks_[*cause].error ? ranks_[*cause].error->code : ErrorCode::kRemote,
                how_it_ended(static_cast<int>(*cause), ranks_[*cause]) + (ended ? "; the other ranks were ended" : ""));
  }

  const LaunchOptions& options_;
  Signals signals_;
  std::vector<Rank> ranks_;
  std::vector<std::size_t> order_;  // in which the ranks ended
  std::optional<Clock::time_point> first_success_;
};

}  // namespace

Result<void> launch(const LaunchOptions& options) { return Supervisor(options).run(); }

void end_with_launcher() {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The launcher may have died before that took effect: then nobody holds the other end of our pipe any more.
  pollfd pipe{kReportFd, POLLOUT, 0};
  if (poll(&pipe, 1, 0) == 1 && (pipe.revents & POLLERR) != 0) _exit(1);
}

}  // namespace clustar::bench::trainer
