#include "bench/fabric/delay/forwarder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <exception>

#include "bench/fabric/delay/pump.h"
#include "bench/fabric/namespaces.h"

namespace clustar::bench::fabric {
namespace {

constexpr int kReadyBoundMs = 5000;

// Everything of the caller goes: the lock on /run/clustar and pipes that somebody reads to their end among it.
void leave_the_caller(int keep_fd) {
  setsid();
  prctl(PR_SET_NAME, kForwarderCommand);
  prctl(PR_SET_TIMERSLACK, 1UL);
  const int null_fd = open("/dev/null", O_RDWR);
  for (int fd = 0; fd < 3; ++fd) dup2(null_fd, fd);
  const auto keep = static_cast<unsigned>(keep_fd);
  if (keep > 3) syscall(SYS_close_range, 3U, keep - 1, 0U);
  syscall(SYS_close_range, keep + 1, ~0U, 0U);
  (void)!chdir("/");
  for (int number = 1; number < NSIG; ++number) signal(number, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
}

// A cable has a core of its own: ranks that poll, and yield while they wait, kept an ordinary process from running for
// seconds (Linux 6.18), and the whole network stood still. Where that is not allowed it forwards all the same.
void run_before_others() {
  sched_param first{};
  first.sched_priority = 1;
  if (sched_setscheduler(0, SCHED_FIFO, &first) != 0) (void)setpriority(PRIO_PROCESS, 0, -20);
}

// Says "" when it forwards, or what is wrong, and does not come back.
[[noreturn]] void be_the_forwarder(const std::string& fabric, const std::vector<WireCable>& cables, int ready_fd) {
  const auto say = [&](const std::string& text) { (void)!write(ready_fd, text.c_str(), text.size() + 1); };
  try {
    leave_the_caller(ready_fd);
    Result<void> done = enter_namespace(wire_namespace(fabric));
    Pump pump;
    if (done) done = pump.open(cables, forwarder_file(fabric));
    if (done) run_before_others();
    say(done ? "" : done.error().message);
    close(ready_fd);
    if (done) pump.run(namespace_path(wire_namespace(fabric)));
  } catch (const std::exception& error) {
    say(error.what());
  }
  _exit(0);
}

}  // namespace

std::string forwarder_file(const std::string& fabric) { return fmt::format("/run/clustar/fabric-{}.delay", fabric); }

Result<void> start_forwarder(const std::string& fabric, const std::vector<WireCable>& cables) {
  std::array<int, 2> ready{};
  if (pipe2(ready.data(), O_CLOEXEC) != 0) {
    return fail(ErrorCode::kSystem, fmt::format("cannot make a pipe: {}", std::strerror(errno)));
  }
  const pid_t child = fork();
  if (child == 0) {
    // Once more, so that it is nobody's child whom somebody would have to wait for.
    if (fork() == 0) be_the_forwarder(fabric, cables, ready[1]);
    _exit(0);
  }
  close(ready[1]);
  if (child > 0) {
    while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  std::array<char, 512> text{};
  pollfd polled{ready[0], POLLIN, 0};
  const bool said = child > 0 && poll(&polled, 1, kReadyBoundMs) == 1;
  const ssize_t n = said ? read(ready[0], text.data(), text.size() - 1) : -1;
  close(ready[0]);
  if (n == 1 && text[0] == '\0') return {};
  return fail(ErrorCode::kSystem,
              fmt::format("the delay forwarder did not start: {}", n > 0 ? text.data() : "it said nothing within 5 s"));
}

std::vector<DelayTraffic> read_forwarder(const std::string& fabric, const std::vector<WireCable>& cables) {
  std::vector<DelayTraffic> directions;
  const SharedCounters shared = SharedCounters::open(forwarder_file(fabric), 2 * cables.size());
  for (std::size_t i = 0; i < cables.size(); ++i) {
    for (std::size_t side = 0; side < 2; ++side) {
      const WireCable& cable = cables[i];
      DelayTraffic one{side == 0 ? cable.a : cable.b, side == 0 ? cable.b : cable.a, cable.delay_ns, 0, 0, 0, 0};
      if (const DirectionCounters* counters = shared.at(2 * i + side)) {
        one.packets = counters->packets.load(std::memory_order_relaxed);
        one.drops = counters->drops.load(std::memory_order_relaxed);
        one.super_packets = counters->super_packets.load(std::memory_order_relaxed);
        one.waiting_packets = counters->waiting.load(std::memory_order_relaxed);
      }
      directions.push_back(one);
    }
  }
  return directions;
}

}  // namespace clustar::bench::fabric
