// UdIo a on rxe_a and b on rxe_b, peers of each other, and numbered packets between them.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "tests/rdma/link.h"
#include "tests/rdma/two_ends.h"
#include "tests/rdma/ud_under_test.h"
#include "transport/io/verbs/handle.h"
#include "transport/io/verbs/ud_io.h"

namespace clustar::tests {

namespace io = transport::io;
using transport::io::verbs::UdIo;
using transport::io::verbs::UdOptions;

class UdPair : public ::testing::Test {
 protected:
  static constexpr std::size_t kPayload = 200;
  struct Got {
    io::RxPacket info;  // its spans are not valid
    unsigned number = 0;
    std::vector<std::byte> payload;
  };

  void SetUp() override {
    if (const std::string reason = why_no_devices(); !reason.empty()) GTEST_SKIP() << reason;
  }
  void TearDown() override {
    mr.reset();
    a.reset();
    b.reset();
    EXPECT_EQ(verbs::refused_destructions(), 0u);
  }
  std::unique_ptr<UdIo> open(const char* device) {
    options.device = device;
    return must(UdIo::open(options));
  }
  void connect() {
    a = open("rxe_a");
    b = open("rxe_b");
    to_peer = must(a->add_peer(b->local()));
    must(await_ready(*a, to_peer));
    to_a = must(b->add_peer(a->local()));
    bytes_.resize(256 + kPayload);
    for (std::size_t i = 0; i < bytes_.size(); ++i) bytes_[i] = static_cast<std::byte>(i);
    mr = must(a->reg_mr(gdr::MemoryRef::host(bytes_.data(), bytes_.size())));
  }
  // From a to b, by path number % 8; its payload follows from the number.
  io::TxPacket packet(unsigned number) {
    io::TxPacket made;
    made.peer = to_peer;
    made.path = static_cast<std::uint8_t>(number % 8);
    made.header.resize(4);
    for (unsigned i = 0; i < 4; ++i) made.header.bytes()[i] = static_cast<std::byte>(number >> (8 * i));
    made.payload = {mr.get(), number % 256, kPayload};
    return made;
  }
  bool whole(const Got& got) const {
    return std::equal(got.payload.begin(), got.payload.end(), bytes_.begin() + got.number % 256,
                      bytes_.begin() + got.number % 256 + kPayload);
  }
  void send(std::vector<io::TxPacket> packets) { send(packets, *a); }
  // Offers them until all are taken.
  static void send(const std::vector<io::TxPacket>& packets, UdIo& from) {
    std::span<const io::TxPacket> rest = packets;
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!rest.empty()) {
      rest = rest.subspan(must(from.send(rest)));
      if (!rest.empty()) from.wait(std::chrono::milliseconds(1));
      if (std::chrono::steady_clock::now() > limit) throw std::runtime_error("packets were not taken for 20 s");
    }
  }
  // What comes to b until there are `count`, or nothing came for `patience`.
  std::vector<Got> collect(std::size_t count, std::chrono::milliseconds patience = std::chrono::seconds(1)) {
    std::vector<Got> all;
    auto limit = std::chrono::steady_clock::now() + patience;
    while (all.size() < count && std::chrono::steady_clock::now() < limit) {
      io::RxPacket burst[32];
      const auto taken = must(b->receive(burst));
      for (const io::RxPacket& one : std::span(burst).first(taken)) {
        Got got{one, 0, {one.payload.begin(), one.payload.end()}};
        for (unsigned i = 0; i < 4; ++i) got.number |= std::to_integer<unsigned>(one.header[i]) << (8 * i);
        all.push_back(std::move(got));
      }
      b->release(std::span(burst).first(taken));
      if (taken > 0) {
        limit = std::chrono::steady_clock::now() + patience;
      } else {
        b->wait(std::chrono::milliseconds(10));
      }
    }
    return all;
  }

  UdOptions options{};  // of both, before connect()
  std::unique_ptr<UdIo> a;
  std::unique_ptr<UdIo> b;
  std::unique_ptr<io::Mr> mr;  // a's
  io::PeerId to_peer = 0;      // b at a
  io::PeerId to_a = 0;         // a at b

 private:
  std::vector<std::byte> bytes_;
};

}  // namespace clustar::tests
