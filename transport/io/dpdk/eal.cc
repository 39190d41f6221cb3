#include "transport/io/dpdk/eal.h"

#include <fmt/format.h>
#include <pthread.h>
#include <rte_alarm.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_log.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

namespace clustar::transport::io::dpdk {
namespace {

constexpr std::size_t kMostComplaints = 1024;

struct Listeners {
  std::mutex mutex;
  std::vector<std::pair<const EalLog*, Log>> logs;
};
// Never destroyed: DPDK's threads outlive everything of ours.
Listeners& listeners() {
  static auto* const all = new Listeners;
  return *all;
}

thread_local std::string complaints;

void tell(std::string_view line) {
  const bool bad = rte_log_cur_msg_loglevel() <= static_cast<int>(RTE_LOG_ERR);
  if (bad && complaints.size() < kMostComplaints) {
    if (!complaints.empty()) complaints += "; ";
    complaints += line;
  }
  const std::lock_guard lock(listeners().mutex);
  if (listeners().logs.empty()) return;
  // What is wrong is told by the error that follows; a log at its level would tell it twice.
  listeners().logs.back().second.info(fmt::format("dpdk: {}", line));
}

ssize_t on_log(void*, const char* text, std::size_t size) {
  for (std::string_view rest(text, size); !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    if (!line.empty()) tell(line);
  }
  return static_cast<ssize_t>(size);
}

void take_log() {
  cookie_io_functions_t functions{};
  functions.write = on_log;
  std::FILE* const stream = ::fopencookie(nullptr, "w", functions);
  if (stream == nullptr) return;
  std::setvbuf(stream, nullptr, _IOLBF, 0);
  rte_openlog_stream(stream);
}

int first_allowed_cpu() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return 0;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) return cpu;
  }
  return 0;
}

std::vector<std::string> arguments_of(const EalOptions& options) {
  std::vector<std::string> arguments{"clustar",
                                     "--no-telemetry",
                                     "--no-shconf",
                                     "--lcores",
                                     fmt::format("0@{}", first_allowed_cpu()),
                                     "-m",
                                     std::to_string(options.memory_mb)};
  const auto add = [&](std::initializer_list<std::string> more) {
    arguments.insert(arguments.end(), more.begin(), more.end());
  };
  // --in-memory is refused beside --no-huge, which needs no file anyway.
  if (options.huge_pages) {
    add({"--in-memory"});
  } else {
    add({"--no-huge", "--iova-mode=va"});
  }
  if (options.pci.empty()) add({"--no-pci"});
  for (const std::string& device : options.pci) add({"-a", device});
  return arguments;
}

Result<void> begin(const EalOptions& options) {
  take_log();
  std::vector<std::string> arguments = arguments_of(options);
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  if (rte_eal_init(static_cast<int>(arguments.size()), pointers.data()) >= 0) return {};
  const std::string reason = take_complaints();
  return fail(ErrorCode::kUnavailable,
              fmt::format("DPDK cannot begin ({}): {}; `clustar doctor dpdk` says what lacks", rte_strerror(rte_errno),
                          reason.empty() ? "no reason was given" : reason));
}

// Some drivers' libraries take signals for themselves when they are loaded.
class KeptSignals {
 public:
  KeptSignals() {
    for (int i = 1; i < kSignals; ++i) known_[i] = ::sigaction(i, nullptr, &handlers_[i]) == 0;
  }
  ~KeptSignals() {
    for (int i = 1; i < kSignals; ++i) {
      struct sigaction now {};
      if (!known_[i] || ::sigaction(i, nullptr, &now) != 0 || now.sa_handler == handlers_[i].sa_handler) continue;
      ::sigaction(i, &handlers_[i], nullptr);
    }
  }
  KeptSignals(const KeptSignals&) = delete;
  KeptSignals& operator=(const KeptSignals&) = delete;

 private:
  static constexpr int kSignals = 32;  // those that have names
  struct sigaction handlers_[kSignals] {};
  bool known_[kSignals]{};
};

// On a thread of its own: DPDK binds the one that calls it to a core, and those that it starts inherit its mask.
Result<void> begin_apart(const EalOptions& options) {
  const KeptSignals signals;
  Result<void> begun;
  std::thread apart([&] {
    sigset_t all;
    sigfillset(&all);
    ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
    begun = begin(options);
  });
  apart.join();
  return begun;
}

struct Turn {
  const std::function<void()>& what;
  std::mutex mutex{};
  std::condition_variable changed{};
  enum class State : std::uint8_t { kWaits, kRuns, kOver } state = State::kWaits;
};

void take_turn(void* self) {
  Turn& turn = *static_cast<Turn*>(self);
  std::unique_lock lock(turn.mutex);
  turn.state = Turn::State::kRuns;
  turn.changed.notify_all();
  lock.unlock();
  turn.what();
  lock.lock();
  turn.state = Turn::State::kOver;
  turn.changed.notify_all();
}

}  // namespace

Result<void> start_eal(const EalOptions& options) {
  static std::mutex mutex;
  static std::optional<Result<void>> begun;
  const std::lock_guard lock(mutex);
  if (!begun) begun.emplace(begin_apart(options));
  return *begun;
}

void run_between_events(const std::function<void()>& what) {
  Turn turn{what};
  if (rte_eal_alarm_set(1, take_turn, &turn) != 0) return what();
  std::unique_lock lock(turn.mutex);
  turn.changed.wait_for(lock, std::chrono::seconds(1), [&] { return turn.state != Turn::State::kWaits; });
  if (turn.state == Turn::State::kWaits) {
    lock.unlock();
    // One that has begun meanwhile is not cancelled.
    if (rte_eal_alarm_cancel(take_turn, &turn) > 0) return what();
    lock.lock();
  }
  turn.changed.wait(lock, [&] { return turn.state == Turn::State::kOver; });
}

EalLog::EalLog(const Log& log) {
  const std::lock_guard lock(listeners().mutex);
  listeners().logs.emplace_back(this, log);
}

EalLog::~EalLog() {
  const std::lock_guard lock(listeners().mutex);
  std::erase_if(listeners().logs, [this](const auto& one) { return one.first == this; });
}

std::string take_complaints() { return std::exchange(complaints, {}); }

}  // namespace clustar::transport::io::dpdk
