// Signal handlers are the user's: PSM's libraries take SIGINT, SIGTERM, SIGSEGV and others when libfabric is loaded, to
// write a backtrace, and libfabric's shm provider takes some to remove its files.
#pragma once

#include <array>
#include <csignal>

namespace clustar::transport::ofi {

// When it ends, all signals are handled as they were when it began. Not for a process that changes its handlers on
// another thread at that time.
class KeptSignals {
 public:
  KeptSignals();
  ~KeptSignals();
  KeptSignals(const KeptSignals&) = delete;
  KeptSignals& operator=(const KeptSignals&) = delete;

 private:
  static constexpr int kSignals = 32;  // those that have names
  std::array<struct sigaction, kSignals> handlers_{};
  std::array<bool, kSignals> known_{};
};

}  // namespace clustar::transport::ofi
