// RAII over socket descriptors, and their addresses.
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "transport/base/file_descriptor.h"
#include "transport/base/result.h"
#include "transport/base/time.h"
#include "transport/net/endpoint.h"

namespace clustar::transport::net {

using Socket = FileDescriptor;

class Address {
 public:
  Address() = default;
  explicit Address(const Endpoint& endpoint);
  static Address of(const sockaddr* address);
  const sockaddr* raw() const { return reinterpret_cast<const sockaddr*>(&storage_); }
  socklen_t length() const;
  bool ipv6() const { return storage_.ss_family == AF_INET6; }
  Endpoint endpoint() const;
  Address with_port(std::uint16_t port) const;
  std::string to_string() const;  // 10.0.0.1:4711, [fd00::1]:4711
  std::string host() const;       // 10.0.0.1, fd00::1
  // Alike for all ports of a host; as good as never for two hosts.
  std::uint32_t host_number() const;

 private:
  sockaddr_storage storage_{};
};

// The outcome of one non-blocking read or write.
struct IoResult {
  enum class Kind : std::uint8_t { kBytes, kWouldBlock, kClosed, kError } kind;
  std::size_t bytes = 0;
  int error = 0;  // errno of kError
};
IoResult read_some(int fd, std::span<iovec> into);
IoResult read_some(int fd, std::span<std::byte> into);
IoResult write_some(int fd, std::span<iovec> from);
IoResult write_some(int fd, std::span<const std::byte> from);
// All of it, before the socket is closed: makes the socket's buffer large enough where the system allows that,
// otherwise waits for room, at most for 16 times `limit` while there is none, and for 160 times in all. False: not all
// could be written.
bool write_last(const Socket& socket, std::span<const std::byte> from, Duration limit);

struct SocketOptions {
  std::string congestion;           // TCP_CONGESTION; empty = the kernel's default
  std::uint32_t notsent_bytes = 0;  // TCP_NOTSENT_LOWAT; 0 = off
  int traffic_class = -1;           // the IP header's byte, 0 .. 255, of which the DSCP counts; -1 = the kernel's
};

// All sockets here are non-blocking and close-on-exec.
Result<Socket> listen_on(const Address& address, const SocketOptions& options);
// kError with EAGAIN-like meanings never escapes: an empty Socket means that nobody waits in the backlog.
Result<Socket> accept_from(const Socket& listener, Address* peer);
// Starts a connection from `local` (its port is ignored); connect_result() tells how it went.
Result<Socket> start_connect(const Address& local, const Address& remote, const SocketOptions& options);
// What was written and not yet sent for the first time; 0 where the kernel does not tell.
std::uint64_t unsent_bytes(const Socket& socket);
// Of a TCP connection so far: segments sent again, and segments that its peer said came with CE (RFC 3168); 0 where the
// kernel does not tell.
struct TcpCounts {
  std::uint64_t retransmitted = 0;
  std::uint64_t marked = 0;
};
TcpCounts tcp_counts(const Socket& socket);
// Of a TCP connection: the shortest round trip of the last minutes, its handshake's included; 0 where the kernel does
// not tell.
Duration shortest_round_trip(const Socket& socket);
// As SocketOptions::traffic_class.
void set_traffic_class(const Socket& socket, int traffic_class);
enum class ConnectState : std::uint8_t { kPending, kConnected, kFailed };
ConnectState connect_result(const Socket& socket, int* error);

// A host that is gone, as opposed to a process that is silent, is noticed within 30 s by probes of an idle connection.
void probe_when_idle(const Socket& socket);
// The same, and a limit on unanswered bytes: for control sockets. Data sockets must not have that limit: it also ends
// connections to a live host whose process does not read.
void detect_dead_host(const Socket& socket);
Address local_address(const Socket& socket);
Result<void> fill_random(std::span<std::byte> out);

}  // namespace clustar::transport::net
