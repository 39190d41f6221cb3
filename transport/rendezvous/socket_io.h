// Bounded TCP for the bootstrap: non-blocking sockets, every wait has a deadline.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "transport/base/file_descriptor.h"
#include "transport/base/result.h"

namespace clustar::rendezvous {

using Deadline = std::chrono::steady_clock::time_point;

struct HostPort {
  std::string host;
  std::string port;
};
// "host:port" or "[v6]:port" with port 1..65535.
Result<HostPort> parse_host_port(const std::string& text);

Result<FileDescriptor> tcp_listen(const HostPort& address);
// One attempt. A socket that met itself (a loopback port nobody listens on) counts as refused.
Result<FileDescriptor> tcp_connect(const HostPort& address, Deadline deadline);
// A connected peer or, when nobody is waiting, an empty one.
FileDescriptor tcp_accept(int listener);

// Waits until one of the poll events is there; false at the deadline.
bool wait_for(int fd, short events, Deadline deadline);
int poll_timeout_ms(Deadline deadline);

enum class Io : std::uint8_t { kDone, kAgain, kClosed };
// Moves bytes without blocking and advances `offset`; kDone when offset reaches the end.
Io read_some(int fd, std::span<std::byte> into, std::size_t& offset);
Io write_some(int fd, std::span<const std::byte> from, std::size_t& offset);
// All bytes before the deadline; false when the peer closed or the time is over (`timed_out` says which).
bool read_all(int fd, std::span<std::byte> into, Deadline deadline, bool& timed_out);
bool write_all(int fd, std::span<const std::byte> from, Deadline deadline, bool& timed_out);

}  // namespace clustar::rendezvous
