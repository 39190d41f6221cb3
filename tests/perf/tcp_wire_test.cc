// The drivers over plain TCP, both ends in this process: every loop moves and checks what it says.
#include "bench/perf/tcp_wire.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>

#include "bench/perf/control.h"
#include "bench/perf/driver.h"
#include "bench/perf/socket_hook.h"

namespace clustar::bench::perf {
namespace {

class TcpDriver : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    const auto handles = receiver_.listen(1);
    ASSERT_TRUE(handles) << handles.error().message;
    const auto deadline = Clock::now() + std::chrono::seconds(10);
    auto connected = std::async(std::launch::async, [&] { return sender_.connect(*handles, deadline); });
    const auto accepted = receiver_.connect({""}, deadline);
    ASSERT_TRUE(accepted) << accepted.error().message;
    ASSERT_TRUE(connected.get());
  }

  // Runs both ends; returns what the receiver saw.
  Result<Sample> run(Loop loop, std::size_t bytes, std::uint64_t count, std::uint64_t sender_seed = 9,
                     bool spin = true) {
    std::vector<Memory> memory;
    for (const int rank : {0, 1}) {
      const Sizes sizes = buffer_sizes(loop, bytes, 1, rank);
      memory.push_back(std::move(*Memory::allocate(sizes.send)));
      memory.push_back(std::move(*Memory::allocate(sizes.receive)));
    }
    EXPECT_TRUE(receiver_.attach(memory[0], memory[1]));
    EXPECT_TRUE(sender_.attach(memory[2], memory[3]));
    std::atomic<std::uint64_t> progress{0}, peer_progress{0};
    const std::chrono::milliseconds stall(2000);
    auto peer = std::async(std::launch::async, [&] {
      return Driver(sender_, memory[2], memory[3], peer_progress, stall)
          .run({loop, bytes, count, sender_seed, spin, 1, 1});
    });
    auto sample = Driver(receiver_, memory[0], memory[1], progress, stall).run({loop, bytes, count, 9, spin, 1, 0});
    peer_result_ = peer.get().has_value();
    EXPECT_GT(progress.load(), 0u);
    return sample;
  }

  TcpWire receiver_{0, "127.0.0.1", GetParam()};
  TcpWire sender_{1, "127.0.0.1", GetParam()};
  bool peer_result_ = false;
};

TEST_P(TcpDriver, StreamCountsWhatArrived) {
  const auto sample = run(Loop::kStream, 300'001, 50);
  ASSERT_TRUE(sample) << sample.error().message;
  EXPECT_TRUE(peer_result_);
  EXPECT_EQ(sample->delivered_bytes, 50u * 300'001u);
  EXPECT_GT(sample->seconds, 0);
  EXPECT_GT(sample->cpu_s, 0);
}

TEST_P(TcpDriver, StreamSleeps) {
  const auto sample = run(Loop::kStream, 4096, 200, 9, false);
  ASSERT_TRUE(sample) << sample.error().message;
}

TEST_P(TcpDriver, PingPongTimesEachRoundTrip) {
  const auto sample = run(Loop::kPingPong, 1, 40);
  ASSERT_TRUE(sample) << sample.error().message;
  EXPECT_TRUE(peer_result_);
  EXPECT_EQ(sample->message_us.size(), 40u);
}

// Without elephants; with them: tests of the command, whose arms have the channels.
TEST_P(TcpDriver, AMixedLoadTimesItsMessages) {
  const auto sample = run(Loop::kMixed, 16384, 20);
  ASSERT_TRUE(sample) << sample.error().message;
  EXPECT_TRUE(peer_result_);
  EXPECT_EQ(sample->message_us.size(), 20u);
  EXPECT_EQ(sample->delivered_bytes, 20u * 16384u);
}

TEST_P(TcpDriver, IncastOfOneSender) {
  const auto sample = run(Loop::kIncast, 65536, 20);
  ASSERT_TRUE(sample) << sample.error().message;
  EXPECT_TRUE(peer_result_);
  EXPECT_EQ(sample->message_us.size(), 20u);
}

TEST_P(TcpDriver, OtherContentIsAnError) {
  const auto sample = run(Loop::kStream, 10'000, 20, 8);
  ASSERT_FALSE(sample);
  EXPECT_NE(sample.error().message.find("wrong data"), std::string::npos) << sample.error().message;
}

INSTANTIATE_TEST_SUITE_P(Streams, TcpDriver, ::testing::Values(1, 2, 3));

TEST(TcpDriverAlone, SilenceEndsAtTheBound) {
  TcpWire receiver{0, "127.0.0.1", 1}, sender{1, "127.0.0.1", 1};
  const auto handles = receiver.listen(1);
  ASSERT_TRUE(handles);
  const auto deadline = Clock::now() + std::chrono::seconds(10);
  auto connected = std::async(std::launch::async, [&] { return sender.connect(*handles, deadline); });
  ASSERT_TRUE(receiver.connect({""}, deadline));
  ASSERT_TRUE(connected.get());
  const Sizes sizes = buffer_sizes(Loop::kStream, 4096, 1, 0);
  const Memory send = std::move(*Memory::allocate(sizes.send));
  const Memory receive = std::move(*Memory::allocate(sizes.receive));
  ASSERT_TRUE(receiver.attach(send, receive));
  std::atomic<std::uint64_t> progress{0};
  Driver driver(receiver, send, receive, progress, std::chrono::milliseconds(100));
  const auto begin = Clock::now();
  const auto sample = driver.run({Loop::kStream, 4096, 10, 1, true, 1, 0});
  ASSERT_FALSE(sample);
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(5));
  EXPECT_NE(sample.error().message.find("nothing moved"), std::string::npos) << sample.error().message;
}

TEST(CongestionControl, IsSetAndReadBackPerSocket) {
  ASSERT_TRUE(set_congestion_control("reno"));
  auto listening = listen_on_any_port("127.0.0.1");
  ASSERT_TRUE(listening);
  const TcpSockets sockets = tcp_sockets(-1);
  EXPECT_GE(sockets.count, 1);
  EXPECT_EQ(sockets.controls, std::vector<std::string>{"reno"});
  const auto unknown = set_congestion_control("nonsense");
  ASSERT_FALSE(unknown);
  EXPECT_NE(unknown.error().message.find("reno"), std::string::npos) << unknown.error().message;
  ASSERT_TRUE(set_congestion_control(""));
}

}  // namespace
}  // namespace clustar::bench::perf
