// What MltTransport promises with a pre-shared key: who gets in.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <thread>

#include "mlt/driver/handshake.h"
#include "tests/conformance/mlt_psk_bed.h"

namespace clustar::transport::conformance {
namespace {

using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

class MltPskHandshake : public MltPskBed {};

// Both sides' errors of a handshake that must fail.
struct Failures {
  std::string connecting;
  std::string accepting;
};
Failures fail_to_connect(Transport& from, Transport& to) {
  Failures failures;
  auto listener = std::move(to.listen(0, {}).value());
  auto pending = from.connect(0, listener->handle(), {});
  EXPECT_TRUE(pending) << pending.error().message;
  if (!pending) return failures;
  EXPECT_TRUE(poll_until(
      [&] {
        if (failures.connecting.empty()) {
          const auto polled = (*pending)->poll();
          if (!polled) failures.connecting = polled.error().message;
          EXPECT_TRUE(!polled || *polled == nullptr);
        }
        if (failures.accepting.empty()) {
          const auto polled = listener->poll_accept();
          if (!polled) failures.accepting = polled.error().message;
          EXPECT_TRUE(!polled || *polled == nullptr);
        }
        return !failures.connecting.empty() && !failures.accepting.empty();
      },
      seconds(5)));
  EXPECT_EQ(listener->poll_accept().value(), nullptr) << "the listener goes on";
  return failures;
}

TEST_P(MltPskHandshake, OneSideWithoutAKeyIsAnErrorOnBothSides) {
  const auto with = create(GetParam(), "a secret of the tests", counting());
  const auto without = create("", "", counting());
  const auto names = [](const char* here, const char* there) {
    return AllOf(HasSubstr(std::string("psk_file is ") + here + " here and " + there + " at the peer"),
                 HasSubstr("127.0.0.1:"), HasSubstr(" lo"), HasSubstr("CLUSTAR_PSK_FILE"));
  };
  Failures failures = fail_to_connect(*with, *without);
  EXPECT_THAT(failures.connecting, names("set", "not set"));
  EXPECT_THAT(failures.accepting, names("not set", "set"));
  failures = fail_to_connect(*without, *with);
  EXPECT_THAT(failures.connecting, names("not set", "set"));
  EXPECT_THAT(failures.accepting, names("set", "not set"));
  EXPECT_EQ(sent_, 0u);
}

TEST_P(MltPskHandshake, AnotherSecretIsAnErrorOnBothSides) {
  const auto one = create(GetParam(), "a secret of the tests", counting());
  const auto other = create(GetParam(), "another secret of the tests", counting());
  const Failures failures = fail_to_connect(*one, *other);
  for (const std::string& text : {failures.connecting, failures.accepting}) {
    EXPECT_THAT(text, AllOf(HasSubstr("psk_file: the peer's secret is another"), HasSubstr("127.0.0.1:")));
    EXPECT_THAT(text, ::testing::Not(HasSubstr("of the tests")));
  }
  EXPECT_EQ(sent_, 0u);
}

TEST_P(MltPskHandshake, AnotherModeIsAnErrorOnBothSides) {
  const std::string theirs = std::string(GetParam()) == "encrypt" ? "authenticate" : "encrypt";
  const auto one = create(GetParam(), "a secret of the tests", counting());
  const auto other = create(theirs, "a secret of the tests", counting());
  const Failures failures = fail_to_connect(*one, *other);
  EXPECT_THAT(failures.connecting, HasSubstr("psk_mode is " + std::string(GetParam()) + " here and " + theirs));
  EXPECT_THAT(failures.accepting, HasSubstr("psk_mode is " + theirs + " here and " + GetParam()));
  EXPECT_EQ(sent_, 0u);
}

template <std::size_t Size>
bool read_all(const net::Socket& socket, std::array<std::byte, Size>& into) {
  return ::recv(socket.fd(), into.data(), Size, MSG_WAITALL) == static_cast<ssize_t>(Size);
}

// Passes on what two peers say, and keeps it.
struct Overheard {
  std::array<std::byte, driver::Hello::kSize> hello;
  std::array<std::byte, driver::Welcome::kSize> welcome;
  driver::Proof confirm;
};
Overheard overhear(Transport& from, Listener& listener) {
  Overheard heard;
  net::Socket middle = std::move(
      net::listen_on(net::Address(driver::HandleInfo::parse(listener.handle())->endpoint).with_port(0), {}).value());
  auto info = driver::HandleInfo::parse(listener.handle()).value();
  info.endpoint = net::local_address(middle).endpoint();
  std::atomic<bool> done{false};
  std::thread relay([&] {
    net::Socket left;
    net::Address peer;
    EXPECT_TRUE(
        poll_until([&] { return static_cast<bool>(left = std::move(net::accept_from(middle, &peer).value())); }));
    const net::Socket right = dial(listener.handle());
    const auto read_from_left = [&](std::span<std::byte> into) {
      std::size_t have = 0;
      EXPECT_TRUE(poll_until([&] {
        const auto got = net::read_some(left.fd(), into.subspan(have));
        have += got.bytes;
        return have == into.size();
      }));
      EXPECT_EQ(::send(right.fd(), into.data(), into.size(), 0), static_cast<ssize_t>(into.size()));
    };
    read_from_left(heard.hello);
    EXPECT_TRUE(read_all(right, heard.welcome));
    EXPECT_EQ(::send(left.fd(), heard.welcome.data(), heard.welcome.size(), 0), std::ssize(heard.welcome));
    read_from_left(heard.confirm);
    driver::Proof ready;
    EXPECT_TRUE(read_all(right, ready));
    done = true;
  });
  auto pending = std::move(from.connect(0, info.serialize(), {}).value());
  EXPECT_TRUE(poll_until([&] {
    EXPECT_EQ(pending->poll().value(), nullptr);
    static_cast<void>(listener.poll_accept().value());
    return done.load();
  }));
  relay.join();
  return heard;
}

TEST_P(MltPskHandshake, AHandshakePlayedAgainOpensNothing) {
  const auto here = create(GetParam());
  const auto there = create(GetParam(), "a secret of the tests", counting());
  auto listener = std::move(there->listen(0, {}).value());
  const Overheard heard = overhear(*here, *listener);
  sent_ = 0;
  const net::Socket again = dial(listener->handle());
  EXPECT_EQ(::send(again.fd(), heard.hello.data(), heard.hello.size(), 0), std::ssize(heard.hello));
  EXPECT_EQ(::send(again.fd(), heard.confirm.data(), heard.confirm.size(), 0), std::ssize(heard.confirm));
  EXPECT_TRUE(poll_until([&] {
    EXPECT_EQ(listener->poll_accept().value(), nullptr);
    return there->summary().find(" 1 strangers") != std::string::npos;
  })) << there->summary();
  std::array<std::byte, driver::Welcome::kSize> welcome;
  EXPECT_TRUE(read_all(again, welcome));
  EXPECT_NE(driver::Welcome::parse(welcome)->psk.nonce, driver::Welcome::parse(heard.welcome)->psk.nonce);
  driver::Proof ready;
  EXPECT_FALSE(read_all(again, ready));
  // A peer that stays silent after the welcome is dropped in time, and harms nobody meanwhile.
  const net::Socket silent = dial(listener->handle());
  EXPECT_EQ(::send(silent.fd(), heard.hello.data(), heard.hello.size(), 0), std::ssize(heard.hello));
  Connection connection = connect(*here, *there);
  transfer(connection, 10'000);
  clock_.advance(seconds(61));
  EXPECT_TRUE(poll_until([&] {
    EXPECT_EQ(listener->poll_accept().value(), nullptr);
    clock_.advance(seconds(61));
    return there->summary().find(" 2 strangers") != std::string::npos;
  })) << there->summary();
}

TEST_P(MltPskHandshake, NothingIsSentBeforeTheHandshakeIsOver) {
  const auto here = create(GetParam(), "a secret of the tests", counting());
  const auto there = create(GetParam(), "a secret of the tests", counting());
  auto listener = std::move(there->listen(0, {}).value());
  auto pending = std::move(here->connect(0, listener->handle(), {}).value());
  const net::Socket stranger = dial(listener->handle());
  const std::vector<std::byte> garbage(5000, std::byte{'x'});
  ::send(stranger.fd(), garbage.data(), garbage.size(), MSG_NOSIGNAL);
  std::unique_ptr<RecvChannel> recv;
  std::unique_ptr<SendChannel> send;
  ASSERT_TRUE(poll_until([&] {
    if (!recv) recv = std::move(listener->poll_accept().value());
    if (!recv) {
      EXPECT_EQ(sent_, 0u);
    }
    if (!send) send = std::move(pending->poll().value());
    return send && recv;
  }));
  EXPECT_EQ(sent_, 0u);
  Connection connection{std::move(send), std::move(recv)};
  transfer(connection, 1000);
  EXPECT_GT(sent_, 0u);
}

INSTANTIATE_TEST_SUITE_P(Modes, MltPskHandshake, ::testing::Values("authenticate", "encrypt"),
                         [](const auto& mode) { return std::string(mode.param); });

}  // namespace
}  // namespace clustar::transport::conformance
