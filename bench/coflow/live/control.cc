#include "bench/coflow/live/control.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "transport/base/file_descriptor.h"

namespace clustar::bench::coflow::live {

Result<std::pair<ControlEnd, ControlEnd>> ControlEnd::pair() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) {
    return fail(ErrorCode::kSystem, fmt::format("a pair of sockets: {}", std::strerror(errno)));
  }
  return std::pair(ControlEnd(FileDescriptor(ends[0])), ControlEnd(FileDescriptor(ends[1])));
}

ControlEnd::Sent ControlEnd::try_send(const Message& message) const {
  if (::send(fd_.fd(), &message, sizeof message, MSG_NOSIGNAL) == sizeof message) return Sent::kDone;
  return errno == EAGAIN || errno == EINTR ? Sent::kFull : Sent::kGone;
}

bool ControlEnd::send(const Message& message, std::chrono::milliseconds patience) const {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  for (;;) {
    const Sent sent = try_send(message);
    if (sent != Sent::kFull) return sent == Sent::kDone;
    if (!proxy::wait_for(fd_.fd(), POLLOUT, deadline)) return false;
  }
}

ControlEnd::State ControlEnd::receive(Message& message) const {
  ssize_t got = recv(fd_.fd(), &message, sizeof message, 0);
  // The other end closed and left something unread: that comes first, its last words after it.
  if (got < 0 && errno == ECONNRESET) got = recv(fd_.fd(), &message, sizeof message, 0);
  if (got == sizeof message) return State::kMessage;
  return got < 0 && (errno == EAGAIN || errno == EINTR) ? State::kNothing : State::kClosed;
}

Message failed(const std::string& why) {
  Message message;
  message.word = Word::kFailed;
  std::copy_n(why.begin(), std::min(why.size(), message.text.size() - 1), message.text.begin());
  return message;
}

}  // namespace clustar::bench::coflow::live
