// When this machine stood still. A virtual machine's cores are taken away for milliseconds, now and then for a tenth of
// a second; a round that this hits is longer by as much, whatever carries it, and /proc/stat's steal shows next to
// nothing.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace clustar::bench::lossy {

// A core was asked to run something at from_ns and did so at to_ns; CLOCK_MONOTONIC.
struct Stall {
  std::int64_t from_ns = 0, to_ns = 0;
};

// The longest of those that have a moment in common with begin_ns to end_ns, in ns; 0: none has.
std::int64_t longest_stall(const std::vector<Stall>& stalls, std::int64_t begin_ns, std::int64_t end_ns);

// Above this a core's thread of highest priority is late only because the core itself was away: on this project's
// machine it is as often late under an incast as when nothing runs, while a soft interrupt holds a core for 2 ms at
// most.
inline constexpr std::int64_t kStallNs = 3'000'000;

// One thread for each core that this process may use, bound to it, SCHED_FIFO, awake once in a millisecond.
// Thread-safe.
class StallWatch {
 public:
  StallWatch();
  ~StallWatch();
  StallWatch(const StallWatch&) = delete;
  StallWatch& operator=(const StallWatch&) = delete;

  // Whether it could have that priority on every core: without it nothing is known.
  bool works() const { return works_; }
  // Of stalls above kStallNs, those that still last included. Forgets what ended before begin_ns.
  std::int64_t longest(std::int64_t begin_ns, std::int64_t end_ns);

 private:
  struct Core;
  void watch(Core& core);

  bool works_ = false;
  std::atomic<bool> over_{false};
  std::mutex mutex_;
  std::vector<Stall> stalls_;
  std::vector<std::unique_ptr<Core>> cores_;
};

}  // namespace clustar::bench::lossy
