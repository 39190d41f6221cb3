#include "transport/rendezvous/socket_io.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>

#include "transport/base/file_descriptor.h"

namespace clustar::rendezvous {
namespace {

std::string errno_text(int error) {
  char text[128] = "";
  // The GNU variant may return its own storage.
  return strerror_r(error, text, sizeof text);
}

struct AddressFree {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, AddressFree>;

Result<Addresses> resolve(const HostPort& address, bool passive) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (passive ? AI_PASSIVE : 0);
  addrinfo* list = nullptr;
  const int status = getaddrinfo(address.host.c_str(), address.port.c_str(), &hints, &list);
  if (status != 0) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("cannot resolve '{}': {}", address.host, gai_strerror(status)));
  }
  return Addresses(list);
}

void set_options(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
}

bool is_connected_to_itself(int fd) {
  sockaddr_storage local{};
  sockaddr_storage remote{};
  socklen_t local_length = sizeof local;
  socklen_t remote_length = sizeof remote;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&local), &local_length) != 0) return false;
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&remote), &remote_length) != 0) return false;
  return local_length == remote_length && std::memcmp(&local, &remote, local_length) == 0;
}

}  // namespace

Result<HostPort> parse_host_port(const std::string& text) {
  const auto bad = [&] {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("'{}' is no address; give host:port or [IPv6]:port with a port of 1 to 65535", text));
  };
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) return bad();
  std::string host = text.substr(0, colon);
  const std::string port = text.substr(colon + 1);
  if (host.front() == '[') {
    if (host.size() < 3 || host.back() != ']') return bad();
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string::npos) {
    return bad();
  }
  int number = 0;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
  if (error != std::errc() || end != port.data() + port.size() || number < 1 || number > 65535) return bad();
  return HostPort{host, port};
}

Result<FileDescriptor> tcp_listen(const HostPort& address) {
  auto addresses = resolve(address, true);
  if (!addresses) return tl::unexpected(addresses.error());
  int error = 0;
  for (const addrinfo* a = addresses->get(); a != nullptr; a = a->ai_next) {
    FileDescriptor fd(socket(a->ai_family, a->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, a->ai_protocol));
    const int on = 1;
    if (fd && setsockopt(fd.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
        bind(fd.fd(), a->ai_addr, a->ai_addrlen) == 0 && listen(fd.fd(), SOMAXCONN) == 0) {
      return fd;
    }
    error = errno;
  }
  return fail(ErrorCode::kSystem,
              fmt::format("rank 0 cannot listen on {}:{}: {}", address.host, address.port, errno_text(error)));
}

Result<FileDescriptor> tcp_connect(const HostPort& address, Deadline deadline) {
  auto addresses = resolve(address, false);
  if (!addresses) return tl::unexpected(addresses.error());
  int error = ETIMEDOUT;
  for (const addrinfo* a = addresses->get(); a != nullptr; a = a->ai_next) {
    FileDescriptor fd(socket(a->ai_family, a->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, a->ai_protocol));
    if (!fd) {
      error = errno;
      continue;
    }
    if (connect(fd.fd(), a->ai_addr, a->ai_addrlen) != 0 && errno != EINPROGRESS) {
      error = errno;
      continue;
    }
    if (!wait_for(fd.fd(), POLLOUT, deadline)) continue;
    socklen_t length = sizeof error;
    getsockopt(fd.fd(), SOL_SOCKET, SO_ERROR, &error, &length);
    if (error == 0 && is_connected_to_itself(fd.fd())) error = ECONNREFUSED;
    if (error == 0) {
      set_options(fd.fd());
      return fd;
    }
  }
  return fail(ErrorCode::kRemote, errno_text(error));
}

FileDescriptor tcp_accept(int listener) {
  FileDescriptor fd(accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (fd) set_options(fd.fd());
  return fd;
}

int poll_timeout_ms(Deadline deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 1'000'000'000));
}

bool wait_for(int fd, short events, Deadline deadline) {
  for (;;) {
    pollfd entry{fd, events, 0};
    const int ready = poll(&entry, 1, poll_timeout_ms(deadline));
    if (ready > 0) return true;
    if (ready == 0 || errno != EINTR) return false;
  }
}

Io read_some(int fd, std::span<std::byte> into, std::size_t& offset) {
  while (offset < into.size()) {
    const ssize_t got = recv(fd, into.data() + offset, into.size() - offset, 0);
    if (got > 0) {
      offset += static_cast<std::size_t>(got);
    } else if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      return Io::kAgain;
    } else if (got == 0 || errno != EINTR) {
      return Io::kClosed;
    }
  }
  return Io::kDone;
}

Io write_some(int fd, std::span<const std::byte> from, std::size_t& offset) {
  while (offset < from.size()) {
    const ssize_t put = send(fd, from.data() + offset, from.size() - offset, MSG_NOSIGNAL);
    if (put >= 0) {
      offset += static_cast<std::size_t>(put);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return Io::kAgain;
    } else if (errno != EINTR) {
      return Io::kClosed;
    }
  }
  return Io::kDone;
}

bool read_all(int fd, std::span<std::byte> into, Deadline deadline, bool& timed_out) {
  timed_out = false;
  for (std::size_t offset = 0;;) {
    const Io state = read_some(fd, into, offset);
    if (state == Io::kDone) return true;
    if (state == Io::kClosed) return false;
    if (!wait_for(fd, POLLIN, deadline)) {
      timed_out = true;
      return false;
    }
  }
}

bool write_all(int fd, std::span<const std::byte> from, Deadline deadline, bool& timed_out) {
  timed_out = false;
  for (std::size_t offset = 0;;) {
    const Io state = write_some(fd, from, offset);
    if (state == Io::kDone) return true;
    if (state == Io::kClosed) return false;
    if (!wait_for(fd, POLLOUT, deadline)) {
      timed_out = true;
      return false;
    }
  }
}

}  // namespace clustar::rendezvous
