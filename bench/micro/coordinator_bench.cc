// A round of the coordinator: all agents report, all are told the new order.
#include <arpa/inet.h>
#include <benchmark/benchmark.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "coflow/control/core/coordinator.h"
#include "coflow/control/core/session.h"
#include "coflow/control/daemon/options.h"
#include "transport/net/socket.h"

namespace clustar::bench::micro {
namespace {

using namespace clustar::coflow::control;
using transport::net::Address;
using transport::net::IoResult;
using transport::net::Socket;

constexpr std::uint32_t kJobs = 50;
constexpr std::uint64_t kMiB = 1024 * 1024;

Hello hello_of(std::uint64_t agent) {
  Hello hello;
  hello.agent = agent + 1;
  hello.job = static_cast<std::uint32_t>(agent % kJobs);
  hello.host = "host" + std::to_string(agent);
  hello.nic = "eth0";
  return hello;
}

// In each round jobs change places.
Report report_of(std::uint64_t agent, std::uint64_t round) {
  const Hello hello = hello_of(agent);
  ClassReport report;
  report.key = {hello.job, 1 + hello.job, kUnknownFunction};
  report.waits = true;
  report.in_all = (1 + (hello.job * 37 + round * 11) % kJobs) * kMiB;
  report.left = report.in_all;
  return {{report}};
}

void in_process(benchmark::State& state) {
  const auto agents = static_cast<std::uint64_t>(state.range(0));
  TimePoint now(std::chrono::seconds(1));
  CoordinatorOptions options;
  options.policy = OrderPolicy::kBssi;
  Coordinator coordinator(options, now);
  for (std::uint64_t i = 0; i < agents; ++i) coordinator.on_message(i, hello_of(i), now);
  std::uint64_t round = 0, told = 0;
  for (auto _ : state) {
    ++round;
    now += options.interval;
    for (std::uint64_t i = 0; i < agents; ++i) coordinator.on_message(i, report_of(i, round), now);
    coordinator.on_timeout(now);
    while (const auto out = coordinator.poll()) ++told;
  }
  state.counters["told"] = static_cast<double>(told) / static_cast<double>(round);
}
BENCHMARK(in_process)
    ->Name("coordinator/in_process")
    ->ArgName("agents")
    ->Arg(1000)
    ->Arg(10000)
    ->Unit(benchmark::kMillisecond);

// The daemon in a process of its own, and all agents' connections on one thread of this one.
class Loopback {
 public:
  explicit Loopback(std::size_t agents) {
    int ends[2];
    if (pipe(ends) != 0) return;
    pid_ = fork();
    if (pid_ == 0) {
      DaemonOptions options;
      options.listen = "127.0.0.1:0";
      options.verbosity = Verbosity::kError;
      options.coordinator.policy = OrderPolicy::kBssi;
      (void)run_daemon(options, [&](const std::string& line) { (void)!write(ends[1], line.c_str(), line.size()); });
      _exit(0);
    }
    close(ends[1]);
    char line[256] = {};
    const ssize_t got = read(ends[0], line, sizeof line - 1);
    close(ends[0]);
    if (got <= 0) return;
    const std::string text(line);
    const std::size_t at = text.find("127.0.0.1:");
    sockaddr_in daemon{};
    daemon.sin_family = AF_INET;
    daemon.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    daemon.sin_port = htons(static_cast<std::uint16_t>(std::stoi(text.substr(at + 10))));
    rlimit files{};
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    epoll_ = Socket(epoll_create1(EPOLL_CLOEXEC));
    for (std::size_t i = 0; i < agents; ++i) {
      if (!join(i, Address::of(reinterpret_cast<const sockaddr*>(&daemon)))) return;
    }
    good_ = true;
  }
  ~Loopback() {
    if (pid_ <= 0) return;
    kill(pid_, SIGTERM);
    waitpid(pid_, nullptr, 0);
  }
  Loopback(const Loopback&) = delete;
  Loopback& operator=(const Loopback&) = delete;
  bool good() const { return good_; }

  double coordinators_cpu() const {
    clockid_t clock = 0;
    timespec time{};
    if (clock_getcpuclockid(pid_, &clock) != 0 || clock_gettime(clock, &time) != 0) return 0;
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
  }

  // Seconds from the first order to the last one of it; below 0: one did not come within 10 s.
  double round(std::uint64_t number) {
    for (std::size_t i = 0; i < links_.size(); ++i) {
      links_[i].session->send(report_of(i, number));
      write_all(links_[i]);
      links_[i].told = false;
    }
    return until_told();
  }

 private:
  struct Link {
    Socket socket;
    std::unique_ptr<Session> session;
    bool told = false;
  };

  static double seconds() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }

  // One after the other: strangers have few places.
  bool join(std::size_t agent, const Address& daemon) {
    Link link;
    sockaddr_in any{};
    any.sin_family = AF_INET;
    auto socket = transport::net::start_connect(Address::of(reinterpret_cast<const sockaddr*>(&any)), daemon, {});
    if (!socket) return false;
    link.socket = std::move(*socket);
    link.session = std::make_unique<Session>(Session::Side::kAgent, SessionKey{}, Nonce16{});
    link.session->send(hello_of(agent));
    const double limit = seconds() + 5;
    while (seconds() < limit) {
      pollfd both{link.socket.fd(), POLLIN | POLLOUT, 0};
      if (poll(&both, 1, 100) <= 0) continue;
      write_all(link);
      read_all(link);
      if (!link.session->next()) continue;
      epoll_event event{};
      event.events = EPOLLIN;
      event.data.u64 = links_.size();
      epoll_ctl(epoll_.fd(), EPOLL_CTL_ADD, link.socket.fd(), &event);
      links_.push_back(std::move(link));
      return true;
    }
    return false;
  }

  static void write_all(Link& link) {
    while (!link.session->to_send().empty()) {
      const IoResult put = transport::net::write_some(link.socket.fd(), link.session->to_send());
      if (put.kind != IoResult::Kind::kBytes) return;
      link.session->sent(put.bytes);
    }
  }

  static void read_all(Link& link) {
    std::array<std::byte, 4096> buffer;
    for (;;) {
      const IoResult got = transport::net::read_some(link.socket.fd(), std::span<std::byte>(buffer));
      if (got.kind != IoResult::Kind::kBytes) return;
      (void)link.session->on_bytes(std::span(buffer).first(got.bytes));
    }
  }

  // A job that keeps its place is told that its order still counts.
  double until_told() {
    std::size_t left = links_.size();
    double first = 0;
    const double limit = seconds() + 10;
    std::array<epoll_event, 256> events;
    while (left > 0 && seconds() < limit) {
      const int count = epoll_wait(epoll_.fd(), events.data(), static_cast<int>(events.size()), 100);
      for (int e = 0; e < count; ++e) {
        Link& link = links_[events[static_cast<std::size_t>(e)].data.u64];
        read_all(link);
        while (const auto message = link.session->next()) {
          if (link.told || !std::holds_alternative<Order>(*message)) continue;
          link.told = true;
          --left;
          if (first == 0) first = seconds();
        }
      }
    }
    return left > 0 ? -1 : seconds() - first;
  }

  pid_t pid_ = -1;
  Socket epoll_;
  std::vector<Link> links_;
  bool good_ = false;
};

void over_loopback(benchmark::State& state) {
  Loopback all(static_cast<std::size_t>(state.range(0)));
  if (!all.good()) return state.SkipWithError("no daemon, or not all agents were welcome");
  std::uint64_t round = 0;
  double worst = 0;
  (void)all.round(++round);
  const double cpu = all.coordinators_cpu();
  const std::uint64_t before = round;
  for (auto _ : state) {
    const double took = all.round(++round);
    if (took < 0) return state.SkipWithError("an order did not come");
    state.SetIterationTime(took);
    worst = std::max(worst, took);
  }
  state.counters["worst_ms"] = worst * 1e3;
  state.counters["cpu_ms"] = (all.coordinators_cpu() - cpu) / static_cast<double>(round - before) * 1e3;
}
// Rounds are 100 ms apart.
BENCHMARK(over_loopback)
    ->Name("coordinator/loopback")
    ->ArgName("agents")
    ->Arg(100)
    ->Arg(1000)
    ->Iterations(30)
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace clustar::bench::micro
