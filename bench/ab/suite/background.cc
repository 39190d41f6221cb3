#include "bench/ab/suite/background.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <functional>
#include <thread>

namespace clustar::bench::ab::suite {
namespace {

using SteadyClock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::uint16_t kPort = 20999;  // below those of the ranks' bootstrap
constexpr milliseconds kStart{10000};
constexpr std::int64_t kNsPerMs = 1'000'000;

std::int64_t monotonic_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1000 * kNsPerMs + now.tv_nsec;
}

sockaddr_in address_of(const std::string& text) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(kPort);
  inet_pton(AF_INET, text.c_str(), &address.sin_addr);
  return address;
}

// Counts what comes on any connection. Never returns.
[[noreturn]] void receive(std::atomic<std::uint64_t>& received, std::atomic<int>& listening) {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  const int yes = 1;
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  const sockaddr_in any = address_of("0.0.0.0");
  if (bind(listener, reinterpret_cast<const sockaddr*>(&any), sizeof any) != 0 || listen(listener, 64) != 0) _exit(1);
  listening = 1;
  std::vector<pollfd> polled{{listener, POLLIN, 0}};
  std::vector<char> block(1 << 18);
  while (poll(polled.data(), polled.size(), -1) >= 0 || errno == EINTR) {
    if ((polled[0].revents & POLLIN) != 0) polled.push_back({accept(listener, nullptr, nullptr), POLLIN, 0});
    for (std::size_t i = 1; i < polled.size(); ++i) {
      if (polled[i].revents == 0) continue;
      const ssize_t n = read(polled[i].fd, block.data(), block.size());
      if (n > 0) received += static_cast<std::uint64_t>(n);
      if (n == 0 || (n < 0 && errno != EINTR)) _exit(1);
    }
  }
  _exit(1);
}

// Clocks of network namespaces are one, so all senders begin at the same moments. Never returns.
[[noreturn]] void send_bursts(const std::string& to, std::uint64_t bytes, int every_ms, std::atomic<int>& connected,
                              std::atomic<std::uint64_t>& bursts, std::atomic<std::uint64_t>& skipped) {
  const int out = socket(AF_INET, SOCK_STREAM, 0);
  const sockaddr_in peer = address_of(to);
  while (connect(out, reinterpret_cast<const sockaddr*>(&peer), sizeof peer) != 0) {
    if (errno != EINTR) _exit(1);
  }
  ++connected;
  const std::vector<char> block(bytes, 'b');
  const std::int64_t every = every_ms * kNsPerMs;
  std::int64_t next = (monotonic_ns() / every + 1) * every;
  while (true) {
    const timespec at{next / (1000 * kNsPerMs), next % (1000 * kNsPerMs)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, nullptr) == EINTR) {
    }
    for (std::size_t sent = 0; sent < block.size();) {
      const ssize_t n = send(out, block.data() + sent, block.size() - sent, MSG_NOSIGNAL);
      if (n < 0 && errno != EINTR) _exit(1);
      if (n > 0) sent += static_cast<std::size_t>(n);
    }
    ++bursts;
    const std::int64_t later = std::max(next + every, (monotonic_ns() / every + 1) * every);
    skipped += static_cast<std::uint64_t>((later - next) / every - 1);
    next = later;
  }
}

bool wait_until(SteadyClock::time_point deadline, const std::function<bool()>& done) {
  while (!done()) {
    if (SteadyClock::now() > deadline) return false;
    std::this_thread::sleep_for(milliseconds(2));
  }
  return true;
}

}  // namespace

struct BackgroundTraffic::Shared {
  std::atomic<std::uint64_t> received{0}, bursts{0}, skipped{0};
  std::atomic<int> listening{0}, connected{0};
};

// A process of its own for each, because a network namespace is that of a thread and this one has others to serve.
Result<void> BackgroundTraffic::fork_into(const fabric::Fabric& fabric, int host, auto body) {
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) return fail(ErrorCode::kSystem, fmt::format("cannot start background traffic: {}", strerror(errno)));
  if (pid > 0) {
    processes_.push_back(pid);
    return {};
  }
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  for (const int number : {SIGTERM, SIGHUP, SIGPIPE}) signal(number, SIG_DFL);
  // Ctrl-C reaches the whole group; the process that started this ends it.
  signal(SIGINT, SIG_IGN);
  if (!fabric.enter_process(host)) _exit(1);
  body();
  _exit(1);
}

Result<std::unique_ptr<BackgroundTraffic>> BackgroundTraffic::start(const fabric::Fabric& fabric,
                                                                    const Background& background, int ranks) {
  std::unique_ptr<BackgroundTraffic> traffic(new BackgroundTraffic());
  void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return fail(ErrorCode::kSystem, fmt::format("no shared memory: {}", strerror(errno)));
  Shared* shared = traffic->shared_ = new (memory) Shared();
  const auto deadline = SteadyClock::now() + kStart;
  auto ok = traffic->fork_into(fabric, background.target, [=] { receive(shared->received, shared->listening); });
  if (!ok) return tl::unexpected(ok.error());
  const auto late = [&](const char* who) {
    return fail(ErrorCode::kSystem,
                fmt::format("background traffic: {} not ready after {} s", who, kStart.count() / 1000));
  };
  if (!wait_until(deadline, [=] { return shared->listening == 1; })) return late("the receiver is");
  const std::string to = fabric.address(background.target);
  for (int i = 0; i < background.senders; ++i) {
    ok = traffic->fork_into(fabric, ranks + i, [=] {
      send_bursts(to, background.bytes, background.every_ms, shared->connected, shared->bursts, shared->skipped);
    });
    if (!ok) return tl::unexpected(ok.error());
  }
  if (!wait_until(deadline, [=] { return shared->connected == background.senders; })) return late("the senders are");
  traffic->begin_ = SteadyClock::now();
  return traffic;
}

BackgroundTraffic::~BackgroundTraffic() {
  for (const pid_t pid : processes_) {
    if (pid <= 0) continue;
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
  if (shared_ != nullptr) munmap(shared_, sizeof(Shared));
}

Result<BackgroundTraffic::Counts> BackgroundTraffic::counts() const {
  for (const pid_t pid : processes_) {
    siginfo_t info{};
    if (waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid) {
      return fail(ErrorCode::kRemote, fmt::format("background traffic: process {} ended by itself", pid));
    }
  }
  Counts counts;
  counts.received_bytes = shared_->received;
  counts.bursts = shared_->bursts;
  counts.skipped = shared_->skipped;
  counts.seconds = std::chrono::duration<double>(SteadyClock::now() - begin_).count();
  return counts;
}

}  // namespace clustar::bench::ab::suite
