// Ctrl-C, SIGTERM and SIGHUP as a question that is asked between two steps, so that nothing is left behind.
#pragma once

#include <signal.h>

#include <array>

namespace clustar::bench::ab {

// While it lives, the three signals only set a flag, and writing to a closed pipe is an error instead of the end.
// Children start with the usual handlers. One at a time in a process.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  // The signal that came, or 0.
  static int signal_number();

 private:
  std::array<struct sigaction, 4> before_{};
};

}  // namespace clustar::bench::ab
