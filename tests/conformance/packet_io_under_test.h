// What an implementation of waist 2 gives to the conformance suite, and the helpers that the suite is written in.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "transport/io/packet_io.h"

namespace clustar::transport::conformance {

// Three ends of one network, on which nothing else is lost than what the receiver's memory cannot hold.
class PacketIoBed {
 public:
  static constexpr std::size_t kEnds = 3;
  virtual ~PacketIoBed() = default;
  virtual io::PacketIo& end(std::size_t index) = 0;
  // How `from` names `to`, once add_peer() was called for them.
  virtual io::PeerId peer(std::size_t from, std::size_t to) { return peers_[from][to]; }
  // The ends are around another bed's, whose peers they have.
  void as_in(PacketIoBed& other);
  // By local_address() and add_peer() of the ends, as a handshake would.
  virtual Result<void> add_peer(std::size_t from, std::size_t to);
  Result<void> add_all_peers();
  // Where the control connections to an end would go.
  virtual net::Endpoint control(std::size_t) { return {false, 0, {std::byte{127}, {}, {}, std::byte{1}}}; }
  // Lets time pass: simulated time, or a real wait of about that long.
  virtual void advance(Duration duration) = 0;

  // What a bed can force; the suite skips what it cannot.
  virtual bool refuses_bursts() const { return false; }  // a burst of 4,096 packets is more than an end takes at once
  virtual bool marks_incast() const { return false; }    // ECT packets of two ends to one, both at line rate, get CE

 private:
  io::PeerId peers_[kEnds][kEnds] = {};
};

struct PacketIoUnderTest {
  std::string name;
  std::function<Result<std::unique_ptr<PacketIoBed>>()> create;
};
inline void PrintTo(const PacketIoUnderTest& under_test, std::ostream* out) { *out << under_test.name; }

// The list of the program: packet_io_list.cc's for what runs everywhere, tests/rdma/packet_io_list.cc's for what needs
// RDMA devices. packet_io_sim_under_test.cc and its like add to it.
std::vector<PacketIoUnderTest> packet_ios_under_test();
std::vector<PacketIoUnderTest> sim_under_test();
// The same with decorators around each end; those that change packets are set to change nothing.
std::vector<PacketIoUnderTest> decorated(const PacketIoUnderTest& plain);
std::vector<PacketIoUnderTest> udp_under_test();
std::vector<PacketIoUnderTest> toy_under_test();

// A received packet by value.
struct Received {
  io::RxPacket info;  // its spans are not valid
  std::vector<std::byte> header;
  std::vector<std::byte> payload;
};
// Receives, copies and releases until `count` packets came or nothing came for `patience`.
std::vector<Received> collect(PacketIoBed& bed, std::size_t end, std::size_t count,
                              Duration patience = std::chrono::milliseconds(200));
// Offers all, again and again, letting time pass in between; fails the test if that does not end.
void send_all(PacketIoBed& bed, std::size_t end, std::span<const io::TxPacket> packets);

// Registered host memory with a pattern.
struct PayloadBuffer {
  PayloadBuffer(io::PacketIo& io, std::size_t size, unsigned seed);
  std::vector<std::byte> bytes;
  std::unique_ptr<io::Mr> mr;
};
io::Header header_of(std::size_t size, unsigned seed);

}  // namespace clustar::transport::conformance
