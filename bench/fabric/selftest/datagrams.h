// Sockets of the probes: UDP on a host of a fabric, with the kernel's time of arrival.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "bench/fabric/fabric.h"
#include "transport/base/result.h"

namespace clustar::bench::fabric::selftest {

inline constexpr std::uint64_t kHeaderBytes = 14 + 20 + 8;  // of a UDP frame without FCS
inline constexpr std::uint8_t kEct0 = 2;                    // RFC 3168, section 5
inline constexpr std::uint8_t kCe = 3;
constexpr std::uint8_t tos_of(int traffic_class, std::uint8_t ecn = 0) {
  return static_cast<std::uint8_t>(traffic_class << 5 | ecn);
}

// Nanoseconds of CLOCK_MONOTONIC, which nobody can set; arrivals are told in it, too.
std::int64_t now_ns();

class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  ~Fd();
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  int get() const { return fd_; }

 private:
  int fd_ = -1;
};

struct Arrival {
  std::uint32_t sequence = 0;
  std::uint32_t frame_bytes = 0;
  std::uint8_t tos = 0;
  std::int64_t at_ns = 0;  // when the host's end of the cable had it
};

// One UDP socket on a host. Sends to one other socket at most, and keeps what comes until it is taken.
class Datagrams {
 public:
  // `port` 0: any.
  static Result<Datagrams> open(const Fabric& fabric, int host, std::uint16_t port = 0);

  int fd() const { return socket_.get(); }
  std::uint16_t port() const { return port_; }

  // A frame of `frame_bytes` without FCS that begins with `sequence`. Waits while the host's own queue is full, at most
  // 5 s.
  Result<void> send(const Fabric& fabric, int host, std::uint16_t port, std::uint8_t tos, std::uint64_t frame_bytes,
                    std::uint32_t sequence);
  // Adds what has come to `all`; waits at most `timeout_ms` when there is nothing.
  void take(std::vector<Arrival>& all, int timeout_ms) const;

 private:
  Fd socket_;
  std::uint16_t port_ = 0;
  int tos_ = -1;
  std::vector<char> block_;
};

// So that no ARP packet passes unasked: the host knows the other one for good.
Result<void> remember_neighbour(const Fabric& fabric, int host, int other);

}  // namespace clustar::bench::fabric::selftest
