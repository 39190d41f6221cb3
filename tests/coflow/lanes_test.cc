// What every kind of lanes does, over loopback: both ends here, moved in turn.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "bench/coflow/live/socket_lanes.h"
#include "bench/coflow/live/transport_lanes.h"
#include "tests/dscp_sniffer.h"

namespace clustar::bench::coflow::live {
namespace {

struct Kind {
  const char* name;
  std::function<Result<std::unique_ptr<Lanes>>()> make;
};
void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.name; }

Result<std::unique_ptr<Lanes>> over(const char* transport, const char* order) {
  setenv("CLUSTAR_SOCKET_IFNAME", "lo", 1);
  setenv("CLUSTAR_TRANSPORT", transport, 1);
  setenv("CLUSTAR_SEND_ORDER", order, 1);
  setenv("CLUSTAR_LINE_MBPS", "10000", 1);
  return transport_lanes();
}

class LanesConformance : public ::testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    auto sender = GetParam().make(), receiver = GetParam().make();
    ASSERT_TRUE(sender) << sender.error().message;
    ASSERT_TRUE(receiver) << receiver.error().message;
    sender_ = std::move(*sender);
    receiver_ = std::move(*receiver);
  }

  void open(LaneId lanes) {
    for (LaneId lane = 0; lane < lanes; ++lane) {
      const auto handle = receiver_->listen(lane);
      ASSERT_TRUE(handle) << handle.error().message;
      const auto connected = sender_->connect(lane, *handle);
      ASSERT_TRUE(connected) << connected.error().message;
    }
    bool sends = false, receives = false;
    EXPECT_TRUE(until([&] {
      const auto one = sender_->open();
      const auto other = receiver_->open();
      if (one && other) sends = *one, receives = *other;
      return sends && receives;
    }));
  }

  // Moves both ends until it is so, 20 s at most.
  bool until(const std::function<bool()>& so) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!so()) {
      if (std::chrono::steady_clock::now() > deadline) return false;
    }
    return true;
  }
  bool arrive(std::size_t flows) {
    return until([&] {
      std::vector<LaneId> arrived;
      EXPECT_TRUE(sender_->move(arrived));
      EXPECT_TRUE(arrived.empty());
      EXPECT_TRUE(receiver_->move(arrived));
      for (const LaneId lane : arrived) ++arrived_[lane];
      all_ += arrived.size();
      return all_ >= flows;
    });
  }

  std::unique_ptr<Lanes> sender_, receiver_;
  std::map<LaneId, int> arrived_;
  std::size_t all_ = 0;
};

TEST_P(LanesConformance, FlowsOfAnySizeArrive) {
  open(1);
  for (const std::uint64_t bytes : {1UL, 4096UL, 128 * 1024UL, 128 * 1024UL + 1, 3'000'000UL}) {
    receiver_->receive(0, bytes);
    sender_->send(0, {.bytes = bytes, .coflow = 1, .coflow_bytes = bytes});
    all_ = 0;
    ASSERT_TRUE(arrive(1)) << bytes;
  }
}

TEST_P(LanesConformance, SeveralFlowsOfALaneArriveOneAfterTheOther) {
  open(2);
  for (int flow = 0; flow < 5; ++flow) {
    receiver_->receive(0, 200'000);
    sender_->send(0, {.bytes = 200'000, .coflow = 7, .coflow_bytes = 0});
  }
  receiver_->receive(1, 10);
  sender_->send(1, {.bytes = 10, .coflow = 8, .coflow_bytes = 10});
  ASSERT_TRUE(arrive(6));
  EXPECT_EQ(arrived_[0], 5);
  EXPECT_EQ(arrived_[1], 1);
}

TEST_P(LanesConformance, NothingArrivesThatWasNotSent) {
  open(1);
  receiver_->receive(0, 100);
  std::vector<LaneId> arrived;
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(receiver_->move(arrived));
  EXPECT_TRUE(arrived.empty());
}

TEST_P(LanesConformance, WaitEndsInTimeOrWhenItIsWoken) {
  open(1);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const FileDescriptor read_end(ends[0]), write_end(ends[1]);
  const auto waited = [&](std::chrono::milliseconds at_most) {
    const auto begin = std::chrono::steady_clock::now();
    receiver_->wait(read_end.fd(), at_most);
    return std::chrono::steady_clock::now() - begin;
  };
  const auto full = waited(std::chrono::milliseconds(20));
  EXPECT_GT(full, std::chrono::milliseconds(15));
  EXPECT_LT(full, std::chrono::seconds(10));
  ASSERT_EQ(write(write_end.fd(), "x", 1), 1);
  EXPECT_LT(waited(std::chrono::seconds(30)), std::chrono::seconds(15));
}

TEST_P(LanesConformance, APeerThatIsGoneIsAnError) {
  open(1);
  receiver_->receive(0, 1000);
  sender_.reset();
  Result<void> moved;
  EXPECT_TRUE(until([&] {
    std::vector<LaneId> arrived;
    moved = receiver_->move(arrived);
    return !moved;
  }));
}

INSTANTIATE_TEST_SUITE_P(All, LanesConformance,
                         ::testing::Values(Kind{"sockets", [] { return socket_lanes("127.0.0.1", ""); }},
                                           Kind{"tcp", [] { return over("tcp", "fifo"); }},
                                           Kind{"tcp_coflow", [] { return over("tcp", "coflow"); }},
                                           Kind{"mlt_coflow", [] { return over("mlt", "coflow"); }}),
                         [](const auto& tested) { return std::string(tested.param.name); });

// Values that nobody else on loopback has.
constexpr int kMiceDscp = 45, kBulkDscp = 41;

class LanesClasses : public LanesConformance {};

TEST_P(LanesClasses, TheOrdersLevelsAreOnTheWire) {
  FileDescriptor socket = tests::DscpSniffer::open("lo");
  if (socket.fd() < 0) GTEST_SKIP() << "reading packets needs CAP_NET_RAW";
  const tests::DscpSniffer sniffer(std::move(socket), kMiceDscp << 2, 1);
  open(2);
  constexpr std::uint64_t kMouse = 10'000, kBulk = 2'000'000;
  receiver_->receive(0, kBulk);
  sender_->send(0, {.bytes = kBulk, .coflow = 1, .coflow_bytes = kBulk});
  receiver_->receive(1, kMouse);
  sender_->send(1, {.bytes = kMouse, .coflow = 2, .coflow_bytes = kMouse});
  ASSERT_TRUE(arrive(2));
  EXPECT_TRUE(
      until([&] { return sniffer.seen(kMiceDscp << 2) >= kMouse && sniffer.seen(kBulkDscp << 2) >= kBulk * 9 / 10; }));
  EXPECT_LT(sniffer.seen(kMiceDscp << 2), kBulk / 2);
}

INSTANTIATE_TEST_SUITE_P(Tcp, LanesClasses,
                         ::testing::Values(Kind{"tcp",
                                                [] {
                                                  setenv("CLUSTAR_SEND_DSCP", "0-7=45,8=43,9=41,10-15=39", 1);
                                                  auto lanes = over("tcp", "coflow");
                                                  unsetenv("CLUSTAR_SEND_DSCP");
                                                  return lanes;
                                                }}),
                         [](const auto& tested) { return std::string(tested.param.name); });

TEST(SocketLanes, AnUnknownCongestionControlIsAnError) {
  const auto lanes = socket_lanes("127.0.0.1", "none-such");
  ASSERT_TRUE(lanes);
  const auto handle = (*lanes)->listen(0);
  ASSERT_TRUE(handle);
  const auto connected = (*lanes)->connect(1, *handle);
  ASSERT_FALSE(connected);
  EXPECT_NE(connected.error().message.find("none-such"), std::string::npos);
}

}  // namespace
}  // namespace clustar::bench::coflow::live
