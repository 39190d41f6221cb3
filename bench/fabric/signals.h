// Keeps Ctrl-C from cutting a change of the fabric in half.
#pragma once

#include <signal.h>

#include <string>

namespace clustar::bench::fabric {

// While it lives, SIGINT, SIGTERM and SIGHUP wait (those that the process ignores stay ignored). A caller that changes
// the fabric asks interrupted(), puts things right and returns; then the signal takes its usual course. Holds for the
// calling thread and what it starts: in a program with more threads, block these signals in the others.
class HeldSignals {
 public:
  HeldSignals();
  ~HeldSignals();
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;

  bool interrupted() const;
  // Becomes readable when interrupted() becomes true; nobody reads it. -1 when the kernel gave none.
  int fd() const { return fd_; }

 private:
  sigset_t held_{};
  sigset_t before_{};
  int fd_ = -1;
};

}  // namespace clustar::bench::fabric
