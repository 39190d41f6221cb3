// Tells the coordinator once a second that a command still makes progress, and ends the process when it does not: a
// plugin call that never returns cannot be interrupted otherwise.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

#include "bench/perf/control.h"

namespace clustar::bench::perf {

class Watchdog {
 public:
  explicit Watchdog(Control& control) : control_(control), thread_([this] { loop(); }) {}
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // Between these the progress counter must move at least once in `limit`.
  void begin(std::string command, std::chrono::milliseconds limit);
  void end();
  std::atomic<std::uint64_t>& progress() { return progress_; }

 private:
  void loop();

  Control& control_;
  std::atomic<std::uint64_t> progress_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string command_;  // "" between commands
  std::chrono::milliseconds limit_{0};
  std::uint64_t generation_ = 0;
  bool stop_ = false;
  std::thread thread_;  // last: starts when the rest is there
};

}  // namespace clustar::bench::perf
