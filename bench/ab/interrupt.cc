#include "bench/ab/interrupt.h"

namespace clustar::bench::ab {
namespace {

volatile sig_atomic_t arrived = 0;
constexpr std::array<int, 4> kSignals{SIGINT, SIGTERM, SIGHUP, SIGPIPE};

void note(int number) { arrived = number; }
void ignore(int) {}

}  // namespace

Interrupt::Interrupt() {
  arrived = 0;
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    sigaction(kSignals[i], nullptr, &before_[i]);
    // What the caller ignores (nohup) stays ignored.
    if (before_[i].sa_handler == SIG_IGN) continue;
    struct sigaction action {};
    // A handler, not SIG_IGN: that would be inherited by the ranks.
    action.sa_handler = kSignals[i] == SIGPIPE ? ignore : note;
    action.sa_flags = SA_RESTART;
    sigaction(kSignals[i], &action, nullptr);
  }
}

Interrupt::~Interrupt() {
  for (std::size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &before_[i], nullptr);
}

int Interrupt::signal_number() { return arrived; }

}  // namespace clustar::bench::ab
