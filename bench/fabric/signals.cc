#include "bench/fabric/signals.h"

#include <sys/signalfd.h>
#include <unistd.h>

namespace clustar::bench::fabric {
namespace {

constexpr int kHeld[] = {SIGINT, SIGTERM, SIGHUP};

}  // namespace

HeldSignals::HeldSignals() {
  sigemptyset(&held_);
  for (const int number : kHeld) {
    // A blocked signal stays pending even if it is ignored; it must not count as an interruption.
    struct sigaction action {};
    if (sigaction(number, nullptr, &action) == 0 && action.sa_handler != SIG_IGN) sigaddset(&held_, number);
  }
  pthread_sigmask(SIG_BLOCK, &held_, &before_);
  fd_ = signalfd(-1, &held_, SFD_CLOEXEC | SFD_NONBLOCK);
}

HeldSignals::~HeldSignals() {
  if (fd_ >= 0) close(fd_);
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

bool HeldSignals::interrupted() const {
  sigset_t pending;
  sigpending(&pending);
  for (const int number : kHeld) {
    if (sigismember(&held_, number) == 1 && sigismember(&pending, number) == 1) return true;
  }
  return false;
}

}  // namespace clustar::bench::fabric
