#include "transport/net/waker.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>

namespace clustar::transport::net {

Result<Waker> Waker::create() {
  FileDescriptor event(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!event) return fail(ErrorCode::kSystem, "eventfd: " + describe_errno(errno));
  return Waker(std::move(event));
}

void Waker::wait(std::span<const int> readable, Duration timeout) {
  pollfd watched[1 + kMost];
  nfds_t count = 0;
  watched[count++] = {event_.fd(), POLLIN, 0};
  for (const int fd : readable.first(std::min(readable.size(), kMost))) watched[count++] = {fd, POLLIN, 0};
  const auto nanoseconds = std::max<Duration::rep>(0, timeout.count());
  const timespec limit{static_cast<time_t>(nanoseconds / 1'000'000'000),
                       static_cast<long>(nanoseconds % 1'000'000'000)};
  if (::ppoll(watched, count, &limit, nullptr) <= 0 || watched[0].revents == 0) return;
  eventfd_t wakes = 0;
  ::eventfd_read(event_.fd(), &wakes);
}

void Waker::wake() { ::eventfd_write(event_.fd(), 1); }

}  // namespace clustar::transport::net
