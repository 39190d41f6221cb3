// NCCL's threads ask again and again for as long as they have nothing to do. Here there are more of them than cores,
// and each that polls keeps one from running that it waits for: they sleep for a moment instead. Hidden, so that no
// plugin gets these.

#include <poll.h>
#include <sched.h>
#include <sys/socket.h>

#include <cerrno>
#include <ctime>

#define CLUSTAR_HIDDEN extern "C" __attribute__((visibility("hidden")))

namespace {

long Now() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000'000L + now.tv_nsec;
}

// A thread that comes again at once, most likely having found nothing to do, sleeps for an eighth of the time since it
// first did: each time costs what it waits for some of a core.
void Moment() {
  constexpr long kLeast = 100'000, kMost = 800'000, kAtOnce = 20'000;
  thread_local long since = 0, until = 0;
  const long now = Now();
  if (now - until > kAtOnce) since = now;
  const long waited = (now - since) / 8;
  const timespec moment{0, waited < kLeast ? kLeast : waited > kMost ? kMost : waited};
  nanosleep(&moment, nullptr);
  until = Now();
}

}  // namespace

CLUSTAR_HIDDEN int sched_yield() noexcept {
  Moment();
  return 0;
}

// Bootstrap waits for its peers this way.
CLUSTAR_HIDDEN ssize_t recv(int socket, void* buffer, size_t size, int flags) {
  const ssize_t result = recvfrom(socket, buffer, size, flags, nullptr, nullptr);
  if (result >= 0 || errno != EAGAIN) return result;
  Moment();
  errno = EAGAIN;
  return -1;
}

CLUSTAR_HIDDEN int accept(int socket, sockaddr* address, socklen_t* length) {
  const int result = accept4(socket, address, length, 0);
  if (result >= 0 || errno != EAGAIN) return result;
  Moment();
  errno = EAGAIN;
  return -1;
}

// The proxy's service thread, while something is under way.
CLUSTAR_HIDDEN int poll(pollfd* sockets, nfds_t count, int milliseconds) {
  constexpr timespec kShort{0, 500'000};
  const timespec time{milliseconds / 1000, milliseconds % 1000 * 1'000'000L};
  return ppoll(sockets, count, milliseconds < 0 ? nullptr : milliseconds == 0 ? &kShort : &time, nullptr);
}
