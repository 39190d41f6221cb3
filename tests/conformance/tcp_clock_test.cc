// What the TCP transport does when time passes, with a clock that the test turns.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <mutex>

#include "tests/conformance/transport_under_test.h"
#include "tests/conformance/turned_clock.h"
#include "transport/api/settings.h"
#include "transport/net/settings.h"
#include "transport/tcp/tcp_transport.h"

namespace clustar::transport::conformance {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;

;

class TcpClock : public ::testing::Test {
 protected:
  void create(Duration stall_timeout) {
    Config config;
    config.edit<NetworkSettings>()->interfaces = "=lo";
    config.edit<NetworkSettings>()->family_name = "ipv4";
    config.edit<TransportSettings>()->stall_timeout = stall_timeout;
    Log log([this](LogLevel level, const std::string& text) {
      const std::lock_guard lock(mutex_);
      if (level == LogLevel::kWarn) warnings_ += text + "\n";
    });
    transport_ = std::move(tcp::TcpTransport::create({config, clock_, log}).value());
  }
  std::string take_warnings() {
    const std::lock_guard lock(mutex_);
    return std::exchange(warnings_, {});
  }
  // Enough polls for a channel to look at the clock.
  static void poll(Request& request) {
    for (int i = 0; i < 200; ++i) {
      const auto progress = request.test();
      ASSERT_TRUE(progress) << progress.error().message;
      ASSERT_FALSE(progress->done);
    }
  }

  TurnedClock clock_;
  std::mutex mutex_;
  std::string warnings_;
  std::unique_ptr<Transport> transport_;
};

TEST_F(TcpClock, ASilentPeerOnALiveHostIsNamedAfterTenSecondsAndNeverFails) {
  create(seconds(0));
  Connection connection = connect(*transport_, *transport_);
  RecvBuffer to(*connection.recv, 64);
  Request* recv = must_recv(*connection.recv, {{to.mr.get(), 0, 64, 0}});
  poll(*recv);
  clock_.advance(seconds(9));
  poll(*recv);
  EXPECT_EQ(take_warnings(), "");
  clock_.advance(seconds(2));
  poll(*recv);
  EXPECT_THAT(take_warnings(), ::testing::AllOf(HasSubstr("straggler: 127.0.0.1:"), HasSubstr("for 11 s"),
                                                HasSubstr("1 receives outstanding")));
  poll(*recv);
  EXPECT_EQ(take_warnings(), "") << "once per stall, then at doubling intervals";
  clock_.advance(seconds(24 * 3600));
  poll(*recv);
  // It was only late: the message still arrives.
  SendBuffer from(*connection.send, 64, 1);
  finish({must_send(*connection.send, *from.mr, 0, 64), recv});
  EXPECT_EQ(from.bytes, to.bytes);
}

TEST_F(TcpClock, AReceiverThatTakesNothingIsNamedToo) {
  create(seconds(0));
  Connection connection = connect(*transport_, *transport_);
  SendBuffer from(*connection.send, 1 << 20, 1);
  Request* send = must_send(*connection.send, *from.mr, 0, 1 << 20);
  poll(*send);
  clock_.advance(seconds(15));
  poll(*send);
  EXPECT_THAT(take_warnings(), HasSubstr("has taken no data for 15 s"));
}

TEST_F(TcpClock, AStallTimeoutMakesItAnError) {
  create(seconds(30));
  Connection connection = connect(*transport_, *transport_);
  RecvBuffer to(*connection.recv, 64);
  Request* recv = must_recv(*connection.recv, {{to.mr.get(), 0, 64, 0}});
  poll(*recv);
  clock_.advance(seconds(29));
  poll(*recv);
  clock_.advance(seconds(2));
  const Error error = await_error(*recv, seconds(5));
  EXPECT_EQ(error.code, ErrorCode::kRemote);
  EXPECT_THAT(error.message, HasSubstr("CLUSTAR_STALL_TIMEOUT"));
}

TEST_F(TcpClock, AStrangerWhoSaysNothingIsDroppedAfterFiveSecondsWhilePeersComeAndGo) {
  create(seconds(0));
  auto listener = std::move(transport_->listen(0, {}).value());
  const auto info = tcp::HandleInfo::parse(listener->handle()).value();
  const net::Address address(info.invitation.endpoints.front());
  const net::Socket stranger(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::connect(stranger.fd(), address.raw(), address.length()), 0);
  ASSERT_TRUE(listener->poll_accept());
  auto pending = std::move(transport_->connect(0, listener->handle(), {}).value());
  std::unique_ptr<SendChannel> send;
  std::unique_ptr<RecvChannel> recv;
  EXPECT_TRUE(poll_until([&] {
    if (!send) send = std::move(pending->poll().value());
    if (!recv) recv = std::move(listener->poll_accept().value());
    return send && recv;
  })) << "the peer must not wait for the stranger";
  std::byte byte;
  EXPECT_EQ(::recv(stranger.fd(), &byte, 1, MSG_DONTWAIT), -1) << "still open within its time";
  clock_.advance(seconds(6));
  ASSERT_TRUE(listener->poll_accept());
  EXPECT_EQ(::recv(stranger.fd(), &byte, 1, MSG_DONTWAIT), 0) << "closed";
  EXPECT_THAT(transport_->summary(), HasSubstr("1 strangers dropped"));
}

// A peer written by hand: it shows the token on every socket, and can then lose one of them only.
class HandMadeSender {
 public:
  explicit HandMadeSender(const Handle& handle) {
    const auto info = tcp::HandleInfo::parse(handle).value();
    const net::Address address(info.invitation.endpoints.front());
    tcp::Hello hello;
    hello.token = info.invitation.token;
    hello.settings = info.settings;
    hello.data_sockets = 1;
    for (std::uint8_t role = 0; role < 2; ++role) {
      hello.role = role;
      std::array<std::byte, tcp::Hello::kSize> bytes;
      hello.serialize_to(bytes);
      sockets_[role] = net::Socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      EXPECT_EQ(::connect(sockets_[role].fd(), address.raw(), address.length()), 0);
      EXPECT_EQ(::send(sockets_[role].fd(), bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
    }
  }
  void lose_control(bool reset) {
    const linger at_once{reset ? 1 : 0, 0};
    setsockopt(sockets_[0].fd(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    sockets_[0].close();
  }
  void send(std::span<const std::byte> bytes) {
    EXPECT_EQ(::send(sockets_[1].fd(), bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
  }

 private:
  std::array<net::Socket, 2> sockets_;
};

TEST_F(TcpClock, ALostControlConnectionIsAnErrorWithinThreeSecondsUnlessBytesStillCome) {
  for (const bool reset : {true, false}) {
    create(seconds(0));
    auto listener = std::move(transport_->listen(0, {}).value());
    HandMadeSender sender(listener->handle());
    std::unique_ptr<RecvChannel> recv;
    ASSERT_TRUE(poll_until([&] {
      recv = std::move(listener->poll_accept().value());
      return recv != nullptr;
    }));
    RecvBuffer to(*recv, 100);
    Request* request = must_recv(*recv, {{to.mr.get(), 0, 100, 0}});
    sender.lose_control(reset);
    poll(*request);
    clock_.advance(seconds(2));
    const std::array<std::byte, 10> first_bytes{};  // of a header: the sender is at work
    sender.send(first_bytes);
    poll(*request);
    clock_.advance(seconds(2));
    poll(*request);
    clock_.advance(seconds(1));
    const Error error = await_error(*request, seconds(5));
    EXPECT_EQ(error.code, ErrorCode::kRemote);
    EXPECT_THAT(error.message, HasSubstr("control connection was reset or closed"));
  }
}

TEST_F(TcpClock, GarbageBehindTheRightTokenBreaksThatConnectionOnly) {
  create(seconds(0));
  auto listener = std::move(transport_->listen(0, {}).value());
  HandMadeSender sender(listener->handle());
  std::unique_ptr<RecvChannel> recv;
  ASSERT_TRUE(poll_until([&] {
    recv = std::move(listener->poll_accept().value());
    return recv != nullptr;
  }));
  RecvBuffer to(*recv, 100);
  Request* request = must_recv(*recv, {{to.mr.get(), 0, 100, 0}});
  sender.send(std::vector<std::byte>(200, std::byte{'x'}));
  EXPECT_THAT(await_error(*request, seconds(5)).message, HasSubstr("not a chunk of this protocol"));
  Connection other = connect(*transport_, *transport_);
  SendBuffer from(*other.send, 100, 1);
  RecvBuffer into(*other.recv, 100);
  finish({must_recv(*other.recv, {{into.mr.get(), 0, 100, 0}}), must_send(*other.send, *from.mr, 0, 100)});
}

}  // namespace
}  // namespace clustar::transport::conformance
