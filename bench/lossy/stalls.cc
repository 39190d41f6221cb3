#include "bench/lossy/stalls.h"

#include <pthread.h>
#include <sched.h>
#include <time.h>

#include <algorithm>

namespace clustar::bench::lossy {
namespace {

constexpr std::int64_t kBeatNs = 1'000'000;
constexpr std::int64_t kNsPerSecond = 1'000'000'000;

std::int64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * kNsPerSecond + now.tv_nsec;
}

bool bind_with_priority(std::thread& thread, int cpu) {
  cpu_set_t only;
  CPU_ZERO(&only);
  CPU_SET(cpu, &only);
  const sched_param first{.sched_priority = sched_get_priority_max(SCHED_FIFO)};
  return pthread_setaffinity_np(thread.native_handle(), sizeof only, &only) == 0 &&
         pthread_setschedparam(thread.native_handle(), SCHED_FIFO, &first) == 0;
}

}  // namespace

struct StallWatch::Core {
  std::atomic<std::int64_t> due_ns{0};  // when it means to be awake next
  std::thread thread;
};

std::int64_t longest_stall(const std::vector<Stall>& stalls, std::int64_t begin_ns, std::int64_t end_ns) {
  std::int64_t longest = 0;
  for (const Stall& stall : stalls) {
    if (stall.from_ns < end_ns && stall.to_ns > begin_ns) longest = std::max(longest, stall.to_ns - stall.from_ns);
  }
  return longest;
}

StallWatch::StallWatch() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  works_ = true;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed)) continue;
    Core& core = *cores_.emplace_back(std::make_unique<Core>());
    core.due_ns = now_ns() + kBeatNs;
    core.thread = std::thread([this, &core] { watch(core); });
    works_ = bind_with_priority(core.thread, cpu) && works_;
  }
}

StallWatch::~StallWatch() {
  over_ = true;
  for (const auto& core : cores_) core->thread.join();
}

void StallWatch::watch(Core& core) {
  while (!over_) {
    const std::int64_t due = core.due_ns;
    const timespec until{due / kNsPerSecond, due % kNsPerSecond};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr);
    const std::int64_t now = now_ns();
    if (now - due > kStallNs) {
      const std::lock_guard lock(mutex_);
      stalls_.push_back({due, now});
    }
    core.due_ns = now + kBeatNs;
  }
}

std::int64_t StallWatch::longest(std::int64_t begin_ns, std::int64_t end_ns) {
  const std::lock_guard lock(mutex_);
  std::erase_if(stalls_, [&](const Stall& stall) { return stall.to_ns < begin_ns; });
  std::int64_t longest = longest_stall(stalls_, begin_ns, end_ns);
  const std::int64_t now = now_ns();
  for (const auto& core : cores_) {
    const Stall lasting{core->due_ns, now};
    if (lasting.to_ns - lasting.from_ns > kStallNs)
      longest = std::max(longest, longest_stall({lasting}, begin_ns, end_ns));
  }
  return longest;
}

}  // namespace clustar::bench::lossy
