// The drivers over bare UDP, both ends in this process; losses by a relay in the middle.
#include "bench/perf/udp_wire.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <future>
#include <thread>

#include "bench/perf/driver.h"
#include "mlt/core/wire.h"
#include "transport/base/file_descriptor.h"

namespace clustar::bench::perf {
namespace {

// Between the ends: passes on datagrams, but for every n-th data packet of those from the sender.
class Relay {
 public:
  Relay(std::uint16_t to, int lose_every) : lose_every_(lose_every) {
    front_ = FileDescriptor(bound());
    back_ = FileDescriptor(bound());
    sockaddr_in target = loopback(to);
    EXPECT_EQ(connect(back_.fd(), reinterpret_cast<sockaddr*>(&target), sizeof target), 0);
    thread_ = std::thread([this] { run(); });
  }
  ~Relay() {
    stop_ = true;
    thread_.join();
  }
  std::uint16_t port() const {
    sockaddr_in name{};
    socklen_t length = sizeof name;
    getsockname(front_.fd(), reinterpret_cast<sockaddr*>(&name), &length);
    return ntohs(name.sin_port);
  }
  std::uint64_t lost() const { return lost_; }

 private:
  static sockaddr_in loopback(std::uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
  }
  static int bound() {
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const sockaddr_in any = loopback(0);
    // As much as the system allows, as the wire's own: what this one drops for want of memory is not seen here.
    const int bytes = 4 << 20;
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
    EXPECT_EQ(bind(fd, reinterpret_cast<const sockaddr*>(&any), sizeof any), 0);
    return fd;
  }
  void run() {
    std::vector<std::byte> packet(65536);
    sockaddr_in sender{};
    while (!stop_) {
      std::array<pollfd, 2> both{{{front_.fd(), POLLIN, 0}, {back_.fd(), POLLIN, 0}}};
      if (poll(both.data(), both.size(), 20) <= 0) continue;
      if ((both[0].revents & POLLIN) != 0) {
        socklen_t length = sizeof sender;
        const ssize_t n = recvfrom(front_.fd(), packet.data(), packet.size(), MSG_DONTWAIT,
                                   reinterpret_cast<sockaddr*>(&sender), &length);
        const bool data = n > 16;
        if (data && ++seen_ % static_cast<std::uint64_t>(lose_every_) == 0) {
          ++lost_;
        } else if (n > 0) {
          send(back_.fd(), packet.data(), static_cast<std::size_t>(n), 0);
        }
      }
      if ((both[1].revents & POLLIN) != 0) {
        const ssize_t n = recv(back_.fd(), packet.data(), packet.size(), MSG_DONTWAIT);
        if (n > 0) {
          sendto(front_.fd(), packet.data(), static_cast<std::size_t>(n), 0, reinterpret_cast<sockaddr*>(&sender),
                 sizeof sender);
        }
      }
    }
  }

  int lose_every_;
  FileDescriptor front_;
  FileDescriptor back_;
  std::uint64_t seen_ = 0;
  std::atomic<std::uint64_t> lost_{0};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

class UdpDriver : public ::testing::Test {
 protected:
  void join(int lose_every = 0) {
    auto handles = receiver_.listen(1);
    ASSERT_TRUE(handles) << handles.error().message;
    std::string& handle = handles->front();
    if (lose_every > 0) {
      const std::size_t colon = handle.rfind(':');
      relay_ = std::make_unique<Relay>(static_cast<std::uint16_t>(std::stoi(handle.substr(colon + 1))), lose_every);
      handle = handle.substr(0, colon + 1) + std::to_string(relay_->port());
    }
    const auto deadline = Clock::now() + std::chrono::seconds(10);
    auto connected = std::async(std::launch::async, [&] { return sender_.connect(*handles, deadline); });
    const auto accepted = receiver_.connect({""}, deadline);
    ASSERT_TRUE(accepted) << accepted.error().message;
    const auto greeted = connected.get();
    ASSERT_TRUE(greeted) << greeted.error().message;
  }

  // Runs both ends; returns what the receiver saw.
  Result<Sample> run(Loop loop, std::size_t bytes, std::uint64_t count, bool spin = true) {
    std::vector<Memory> memory;
    for (const int rank : {0, 1}) {
      const Sizes sizes = buffer_sizes(loop, bytes, 1, rank);
      memory.push_back(std::move(*Memory::allocate(sizes.send)));
      memory.push_back(std::move(*Memory::allocate(sizes.receive)));
    }
    EXPECT_TRUE(receiver_.attach(memory[0], memory[1]));
    EXPECT_TRUE(sender_.attach(memory[2], memory[3]));
    std::atomic<std::uint64_t> progress{0}, peer_progress{0};
    const std::chrono::milliseconds stall(10'000);
    auto peer = std::async(std::launch::async, [&] {
      return Driver(sender_, memory[2], memory[3], peer_progress, stall).run({loop, bytes, count, 9, spin, 1, 1});
    });
    auto sample = Driver(receiver_, memory[0], memory[1], progress, stall).run({loop, bytes, count, 9, spin, 1, 0});
    const auto other = peer.get();
    EXPECT_TRUE(other) << other.error().message;
    return sample;
  }

  std::unique_ptr<Relay> relay_;
  UdpWire receiver_{0, "127.0.0.1"};
  UdpWire sender_{1, "127.0.0.1"};
};

TEST_F(UdpDriver, StreamCountsWhatArrived) {
  join();
  for (const bool spin : {true, false}) {
    const auto sample = run(Loop::kStream, 300'001, 50, spin);
    ASSERT_TRUE(sample) << sample.error().message;
    EXPECT_EQ(sample->delivered_bytes + sample->lost.bytes, 50u * 300'001u);
    EXPECT_GT(sample->delivered_bytes, 0u);
    EXPECT_GT(sample->seconds, 0);
    EXPECT_GT(sample->cpu_s, 0);
  }
}

TEST_F(UdpDriver, SmallMessagesAndRoundTrips) {
  join();
  const auto stream = run(Loop::kStream, 1, 500);
  ASSERT_TRUE(stream) << stream.error().message;
  const auto rounds = run(Loop::kPingPong, 8, 40);
  ASSERT_TRUE(rounds) << rounds.error().message;
  EXPECT_EQ(rounds->message_us.size(), 40u);
}

TEST_F(UdpDriver, WhatIsLostIsCountedAndNotDelivered) {
  join(10);
  // 5 messages of 4 datagrams of the full size; the last one of all is among the lost.
  const auto sample = run(Loop::kStream, 4 * (UdpWire::packet_bytes(65536, false) - UdpWire::kHeaderBytes), 5);
  ASSERT_TRUE(sample) << sample.error().message;
  EXPECT_GE(relay_->lost(), 1u);
  EXPECT_GE(sample->lost.packets, relay_->lost());  // its socket buffers may lose some more
  EXPECT_GT(sample->lost.bytes, 0u);
  EXPECT_EQ(sample->delivered_bytes + sample->lost.bytes,
            20u * (UdpWire::packet_bytes(65536, false) - UdpWire::kHeaderBytes));
  // Nothing of it is left for the next sample.
  const auto rounds = run(Loop::kPingPong, 8, 5);
  ASSERT_TRUE(rounds) << rounds.error().message;
  EXPECT_EQ(rounds->message_us.size(), 5u);
}

TEST_F(UdpDriver, LostRoundTripsGoOn) {
  join(3);
  const auto rounds = run(Loop::kPingPong, 8, 11);
  ASSERT_TRUE(rounds) << rounds.error().message;
  EXPECT_EQ(rounds->message_us.size(), 11u);
  EXPECT_GE(relay_->lost(), 1u);
  EXPECT_GE(rounds->lost.packets, relay_->lost());
}

TEST(UdpDriverAlone, AStrangerIsNotThePeer) {
  UdpWire receiver{0, "127.0.0.1"}, sender{1, "127.0.0.1"};
  auto handles = receiver.listen(1);
  ASSERT_TRUE(handles);
  (*handles)[0][0] = (*handles)[0][0] == '0' ? '1' : '0';
  auto connected = std::async(std::launch::async,
                              [&] { return sender.connect(*handles, Clock::now() + std::chrono::milliseconds(200)); });
  EXPECT_FALSE(receiver.connect({""}, Clock::now() + std::chrono::milliseconds(200)));
  EXPECT_FALSE(connected.get());
  EXPECT_FALSE(sender.connect({"nonsense"}, Clock::now()));
}

TEST(UdpPacket, IsAsLongAsMltsOnTheSamePath) {
  EXPECT_EQ(UdpWire::kHeaderBytes, mlt::DataHeader::kSize + 1);  // and UDP's byte of framing
  EXPECT_EQ(UdpWire::packet_bytes(1500, false), 1472u);
  EXPECT_EQ(UdpWire::packet_bytes(1500, true), 1452u);
  EXPECT_EQ(UdpWire::packet_bytes(65536, false), 65507u);
}

}  // namespace
}  // namespace clustar::bench::perf
