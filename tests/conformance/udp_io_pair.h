// Two UdpIo on loopback that know each other, a socket without any rules, and a network of one's own.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "transport/io/udp/udp_io.h"

namespace clustar::transport::io::udp {

UdpOptions loopback(std::uint8_t paths = 4);
std::unique_ptr<UdpIo> must_open(const UdpOptions& options);

// A received packet by value.
struct Taken {
  PeerId peer;
  std::uint8_t path;
  std::uint8_t traffic_class;
  Ecn ecn;
  std::vector<std::byte> header;
  std::vector<std::byte> payload;
  bool operator==(const Taken&) const = default;
};
// Receives and releases until `count` came or nothing came for `quiet`.
std::vector<Taken> take(UdpIo& io, std::size_t count, std::chrono::milliseconds quiet = std::chrono::milliseconds(200));
// Between hosts the kernel asks again for a neighbour's address after 1 s.
inline constexpr std::chrono::milliseconds kNeighbourWait{3000};

struct Pair {
  explicit Pair(const UdpOptions& sender, std::optional<UdpOptions> receiver = {});
  // A packet from a to b with `number` in its header and `length` bytes of `bytes` from `offset` on.
  TxPacket packet(std::uint32_t number, std::size_t length, std::uint8_t path = 0, std::size_t offset = 0) const;
  // Offers until all is taken; fails the test if that does not end.
  void send(std::span<const TxPacket> packets);

  std::unique_ptr<UdpIo> a;
  std::unique_ptr<UdpIo> b;
  PeerId b_of_a = 0;
  PeerId a_of_b = 0;
  std::vector<std::byte> bytes;  // 128 KiB that differ
  std::unique_ptr<Mr> mr;        // of `bytes`, at a
};
std::uint32_t number_of(std::span<const std::byte> header);

// Says whatever it likes to one address, from one port of 127.0.0.1.
class RawSocket {
 public:
  RawSocket();
  UdpAddress address() const;  // one path
  // With `segment` > 0 as one UDP_SEGMENT message.
  bool send(const UdpAddress& to, std::span<const std::byte> datagram, std::size_t segment = 0, std::size_t path = 0);
  // The TOS byte of the next datagram; -1 if none comes within a second.
  int receive_tos();

 private:
  PathSocket socket_;
};

// Runs `body` on a thread with a network namespace of its own, in which only loopback is up; it goes with the thread.
// Commands that body starts run there too. Returns why it cannot be done; empty when body ran.
std::string in_own_network(const std::function<void()>& body);
bool shell(const std::string& command);

}  // namespace clustar::transport::io::udp
