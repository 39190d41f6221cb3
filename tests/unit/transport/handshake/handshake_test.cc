// What all transports do before their own protocols begin.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "transport/handshake/core/hello.h"
#include "transport/handshake/core/invitation.h"
#include "transport/handshake/core/retry_plan.h"
#include "transport/handshake/dial.h"
#include "transport/handshake/reception.h"
#include "transport/net/interfaces.h"

namespace clustar::transport::handshake {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

constexpr HelloFormat kHello{.magic = 0x54455354, .version = 7, .size = 40};
constexpr HandleFormat kHandle{.magic = 0x5445535448414e44, .version = 7, .own = 4};

struct TurnedClock final : Clock {
  TimePoint time{seconds(1)};
  TimePoint now() const override { return time; }
};

std::vector<std::byte> hello_with(const Token& token) {
  std::vector<std::byte> bytes(kHello.size, std::byte{9});
  for (std::size_t i = 0; i < 4; ++i) bytes[i] = static_cast<std::byte>(kHello.magic >> (24 - 8 * i));
  bytes[4] = std::byte{0};
  bytes[5] = std::byte{7};
  std::copy(token.begin(), token.end(), bytes.begin() + 8);
  return bytes;
}

TEST(HelloFormat, EveryByteOfMagicVersionAndTokenCounts) {
  Token token;
  token.fill(std::byte{0xa5});
  for (std::size_t at = 0; at < HelloFormat::kFrontSize; ++at) {
    auto bytes = hello_with(token);
    bytes[at] ^= std::byte{0x10};
    const bool own = at == 6 || at == 7;  // of the transport
    const Front expected = own      ? Front::kShowsToken
                           : at < 4 ? Front::kOtherProtocol
                           : at < 6 ? Front::kOtherVersion
                                    : Front::kOtherToken;
    EXPECT_EQ(kHello.judge(std::span(bytes).first<HelloFormat::kFrontSize>(), token), expected) << at;
  }
}

TEST(Invitation, LeavesTheTransportItsOwnBytes) {
  Invitation info;
  info.token.fill(std::byte{3});
  info.config.rank = 12;
  info.endpoints = {{.ipv6 = false, .port = 1}, {.ipv6 = true, .port = 2}};
  Handle handle = info.serialize(kHandle);
  for (std::size_t i = 0; i < kHandle.own; ++i) {
    EXPECT_EQ(handle[HandleFormat::kOwnAt + i], std::byte{0});
    handle[HandleFormat::kOwnAt + i] = std::byte{0xff};
  }
  const auto read = Invitation::parse(kHandle, handle);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->token, info.token);
  EXPECT_EQ(read->config, info.config);
  ASSERT_EQ(read->endpoints.size(), 2u);
  EXPECT_TRUE(read->endpoints[1].ipv6);
  EXPECT_EQ(read->endpoints[1].port, 2);
  EXPECT_FALSE(Invitation::parse({.magic = kHandle.magic, .version = 8, .own = kHandle.own}, handle));
}

const Error kRefused{ErrorCode::kRemote, "refused"};

TEST(RetryPlan, TriesAllEndpointsAtOnceThenEveryFiftyMilliseconds) {
  RetryPlan plan(3);
  TimePoint now(seconds(5));
  for (const std::size_t endpoint : {0u, 1u, 2u}) {
    EXPECT_TRUE(plan.due(now));
    EXPECT_EQ(plan.endpoint(), endpoint);
    EXPECT_FALSE(plan.on_failure(kRefused, now));
  }
  EXPECT_EQ(plan.endpoint(), 0u) << "in turn";
  EXPECT_FALSE(plan.due(now + milliseconds(49)));
  EXPECT_TRUE(plan.due(now + milliseconds(50)));
}

TEST(RetryPlan, ReportsTheFirstFailureAfterOneSecond) {
  RetryPlan plan(1);
  TimePoint now(seconds(5));
  EXPECT_FALSE(plan.on_failure({ErrorCode::kRemote, "the first"}, now));
  int tries = 1;
  std::optional<Error> end;
  while (!end) {
    now += milliseconds(50);
    ASSERT_TRUE(plan.due(now));
    plan.begin(now);
    end = plan.on_failure({ErrorCode::kRemote, "a later one"}, now);
    ++tries;
  }
  EXPECT_EQ(tries, 21);
  EXPECT_EQ(end->message, "the first");
}

TEST(RetryPlan, EveryEndpointHasItsTryHoweverLongTheFirstTook) {
  RetryPlan plan(2);
  TimePoint now(seconds(5));
  plan.begin(now);
  EXPECT_FALSE(plan.too_late(now + RetryPlan::kConnectTimeout));
  now += RetryPlan::kConnectTimeout + milliseconds(1);
  EXPECT_TRUE(plan.too_late(now));
  EXPECT_FALSE(plan.on_failure(kRefused, now));
  EXPECT_EQ(plan.endpoint(), 1u);
  EXPECT_TRUE(plan.due(now));
  plan.begin(now);
  EXPECT_FALSE(plan.too_late(now)) << "counted again";
  now += RetryPlan::kConnectTimeout + milliseconds(1);
  EXPECT_TRUE(plan.on_failure(kRefused, now));
}

TEST(RetryPlan, WhatIsNotThePeersFailureEndsIt) {
  RetryPlan plan(4);
  const auto end = plan.on_failure({ErrorCode::kSystem, "no descriptors"}, TimePoint(seconds(1)));
  ASSERT_TRUE(end);
  EXPECT_EQ(end->message, "no descriptors");
}

class Meeting : public ::testing::Test {
 protected:
  Meeting() {
    addresses_ = net::find_interfaces("=lo", net::Family::kIpv4, "/sys").value().front().addresses;
    auto opened = Reception::open({"test", clock_, log_, [this] { ++strangers_; }}, kHello, addresses_, {}, kRoom);
    reception_ = std::make_unique<Reception>(std::move(opened.value()));
    invitation_ = reception_->invitation({});
  }

  net::Socket stranger() {
    const net::Address address(invitation_.endpoints.front());
    net::Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(socket.fd(), address.raw(), address.length()), 0);
    return socket;
  }
  static void say(const net::Socket& socket, std::span<const std::byte> bytes) {
    EXPECT_EQ(::send(socket.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  }
  // Whether the other end closed it.
  static bool closed(const net::Socket& socket) {
    std::byte byte;
    const ssize_t got = ::recv(socket.fd(), &byte, 1, MSG_DONTWAIT);
    return got == 0 || (got < 0 && errno == ECONNRESET);
  }
  // Loopback delivers at once, but for the accept queue's last step.
  std::vector<Newcomer> hear(std::size_t wanted = 1) {
    std::vector<Newcomer> all;
    for (int tries = 0; tries < 100 && all.size() < wanted; ++tries) {
      auto heard = reception_->hear();
      EXPECT_TRUE(heard);
      std::ranges::move(*heard, std::back_inserter(all));
      if (all.size() < wanted) std::this_thread::sleep_for(milliseconds(1));
    }
    return all;
  }
  void hear_nobody() { EXPECT_TRUE(hear(0).empty() && reception_->hear().value().empty()); }
  Dial dial(std::vector<net::Endpoint> endpoints) { return {clock_, {"test", "lo", addresses_}, std::move(endpoints)}; }

  static constexpr std::size_t kRoom = 2 * kMaxEndpointSize;
  TurnedClock clock_;
  std::string logged_;
  const Log log_{[this](LogLevel, const std::string& line) { logged_ += line + "\n"; }};
  int strangers_ = 0;
  std::vector<net::Address> addresses_;
  std::unique_ptr<Reception> reception_;
  Invitation invitation_;
};

TEST_F(Meeting, AHelloByteByByteIsHeardAndHeldUpByNobody) {
  const net::Socket silent = stranger();
  const net::Socket slow = stranger();
  const auto hello = hello_with(invitation_.token);
  for (std::size_t at = 0; at + 1 < hello.size(); ++at) {
    say(slow, std::span(hello).subspan(at, 1));
    hear_nobody();
  }
  say(slow, std::span(hello).last(1));
  const auto heard = hear();
  ASSERT_EQ(heard.size(), 1u);
  EXPECT_EQ(heard[0].said, hello);
  EXPECT_TRUE(heard[0].from.to_string().starts_with("127.0.0.1:"));
  EXPECT_EQ(strangers_, 0);
}

TEST_F(Meeting, WhoSaysNothingOrNotAllIsDroppedAfterFiveSeconds) {
  const net::Socket silent = stranger();
  const net::Socket slow = stranger();
  const auto hello = hello_with(invitation_.token);
  say(slow, std::span(hello).first(kHello.size - 1));
  hear_nobody();
  clock_.time += Reception::kHelloTimeout - milliseconds(1);
  hear_nobody();
  EXPECT_FALSE(closed(silent) || closed(slow));
  clock_.time += milliseconds(1);
  hear_nobody();
  EXPECT_TRUE(closed(silent) && closed(slow));
  EXPECT_EQ(strangers_, 2);
  EXPECT_THAT(logged_, HasSubstr("test: dropped a connection from 127.0.0.1:"));
}

TEST_F(Meeting, AWrongTokenIsDroppedBeforeTheHelloIsWhole) {
  Token wrong = invitation_.token;
  wrong.back() ^= std::byte{1};
  const net::Socket liar = stranger();
  const auto hello = hello_with(wrong);
  say(liar, std::span(hello).first(HelloFormat::kFrontSize));
  hear_nobody();
  EXPECT_TRUE(closed(liar));
  EXPECT_EQ(strangers_, 1);
  const net::Socket gone = stranger();
  ::shutdown(gone.fd(), SHUT_WR);
  hear_nobody();
  EXPECT_EQ(strangers_, 2);
}

// One cause each, so that a reader of the log does not look for a wrong token where there is none.
TEST_F(Meeting, TheLogSaysWhyANewcomerIsDropped) {
  const auto said_of = [this](std::vector<std::byte> words, std::size_t at) {
    logged_.clear();
    words[at] ^= std::byte{1};
    const net::Socket one = stranger();
    say(one, std::span(words).first(HelloFormat::kFrontSize));
    hear_nobody();
    EXPECT_TRUE(closed(one));
    return logged_;
  };
  const auto hello = hello_with(invitation_.token);
  EXPECT_THAT(said_of(hello, 0), HasSubstr(": it does not speak clustar's test protocol\n"));
  EXPECT_THAT(said_of(hello, 5), HasSubstr(": it speaks version 6 of the test protocol, allowed is 7; load the same"));
  EXPECT_THAT(said_of(hello, 23), HasSubstr(": it showed another token than this listener's\n"));
  logged_.clear();
  const net::Socket gone = stranger();
  say(gone, std::span(hello).first(3));
  ::shutdown(gone.fd(), SHUT_WR);
  hear_nobody();
  EXPECT_THAT(logged_, HasSubstr(": it closed the connection after 3 of 40 bytes\n"));
}

TEST_F(Meeting, TheLogSaysWhoWasTooSlow) {
  const net::Socket silent = stranger();
  hear_nobody();
  clock_.time += Reception::kHelloTimeout;
  hear_nobody();
  EXPECT_THAT(logged_, HasSubstr(": it said nothing for 5 s\n"));
  logged_.clear();
  const net::Socket slow = stranger();
  const auto hello = hello_with(invitation_.token);
  say(slow, std::span(hello).first(39));
  hear_nobody();
  clock_.time += Reception::kHelloTimeout;
  hear_nobody();
  EXPECT_THAT(logged_, HasSubstr(": it said 39 of 40 bytes and no more in time\n"));
}

TEST_F(Meeting, TheLogSaysWhoMadeRoom) {
  std::vector<net::Socket> flood;
  for (std::size_t i = 0; i < Reception::kMaxNewcomers; ++i) flood.push_back(stranger());
  hear_nobody();
  EXPECT_EQ(logged_, "");
  flood.push_back(stranger());
  hear_nobody();
  EXPECT_THAT(logged_, HasSubstr(": it was the oldest of 256 that were still to say their hello, and others came\n"));
}

TEST_F(Meeting, TheLogSaysThatATransportRefusedOneWithTheToken) {
  const net::Socket peer = stranger();
  say(peer, hello_with(invitation_.token));
  const auto heard = hear();
  ASSERT_EQ(heard.size(), 1u);
  reception_->drop(heard[0]);
  EXPECT_THAT(logged_, HasSubstr(": it showed the token, but the rest of what it said does not fit this listener\n"));
  reception_->drop(heard[0], "it came twice");
  EXPECT_THAT(logged_, HasSubstr(": it came twice\n"));
  EXPECT_EQ(strangers_, 2);
}

TEST_F(Meeting, OfTooManyTheOldestMakesRoomButNotAPeerThatSpoke) {
  std::vector<net::Socket> flood;
  const net::Socket peer = stranger();
  hear_nobody();
  say(peer, hello_with(invitation_.token));
  for (std::size_t i = 0; i < Reception::kMaxNewcomers + 2; ++i) flood.push_back(stranger());
  EXPECT_EQ(hear().size(), 1u) << "it came first, and spoke";
  hear_nobody();
  EXPECT_EQ(strangers_, 2);
  EXPECT_TRUE(closed(flood[0]) && closed(flood[1]));
  EXPECT_FALSE(closed(flood[2]));
  const net::Socket late = stranger();
  say(late, hello_with(invitation_.token));
  EXPECT_EQ(hear().size(), 1u);
}

TEST_F(Meeting, AnAnswerAsksForMore) {
  const net::Socket peer = stranger();
  const auto hello = hello_with(invitation_.token);
  say(peer, hello);
  auto heard = hear();
  ASSERT_EQ(heard.size(), 1u);
  const std::array<std::byte, 3> words{std::byte{1}, std::byte{2}, std::byte{3}};
  reception_->answer(std::move(heard[0]), words, 2, seconds(60));
  std::array<std::byte, 3> answer{};
  EXPECT_EQ(::recv(peer.fd(), answer.data(), answer.size(), MSG_WAITALL), 3);
  EXPECT_EQ(answer, words);
  clock_.time += seconds(59);
  hear_nobody();
  say(peer, words);
  heard = hear();
  ASSERT_EQ(heard.size(), 1u);
  EXPECT_EQ(heard[0].said.size(), hello.size() + 2) << "no more than was asked for";
  EXPECT_EQ(heard[0].said.back(), words[1]);
  EXPECT_EQ(heard[0].answered, std::vector<std::byte>(words.begin(), words.end()));
  reception_->answer(std::move(heard[0]), words, 9, seconds(60));
  clock_.time += seconds(60);
  hear_nobody();
  EXPECT_EQ(strangers_, 1);
}

// Those who were answered count, too, and are the last to make room.
TEST_F(Meeting, AFloodThrowsOutNobodyWhoWasAnsweredAndStaysBounded) {
  std::vector<net::Socket> flood;
  const net::Socket peer = stranger();
  say(peer, hello_with(invitation_.token));
  for (std::size_t i = 0; i + 1 < Reception::kMaxNewcomers; ++i) flood.push_back(stranger());
  auto heard = hear();
  ASSERT_EQ(heard.size(), 1u);
  flood.push_back(stranger());
  hear_nobody();
  const std::array<std::byte, 1> words{std::byte{1}};
  reception_->answer(std::move(heard[0]), words, 1, seconds(60));
  EXPECT_EQ(strangers_, 1) << "there were so many already";
  for (std::size_t i = 0; i < Reception::kMaxNewcomers; ++i) flood.push_back(stranger());
  hear_nobody();
  const auto open = std::ranges::count_if(flood, [](const net::Socket& one) { return !closed(one); });
  EXPECT_EQ(static_cast<std::size_t>(open) + 1, Reception::kMaxNewcomers);
  EXPECT_EQ(strangers_, 1 + static_cast<int>(Reception::kMaxNewcomers));
  say(peer, words);
  EXPECT_EQ(hear().size(), 1u);
}

TEST_F(Meeting, ADialIsHeardAndHearsTheAnswerInParts) {
  Dial caller = dial(invitation_.endpoints);
  std::array<std::byte, 2> answer{};
  EXPECT_FALSE(caller.hear(answer).value()) << "no try yet";
  ASSERT_TRUE(caller.begin_try());
  EXPECT_FALSE(caller.begin_try()) << "once per try";
  ASSERT_TRUE(caller.open(hello_with(invitation_.token)));
  ASSERT_TRUE(caller.open(hello_with(invitation_.token)));
  for (int tries = 0; tries < 100; ++tries) ASSERT_FALSE(caller.hear(answer).value()) << "it said all it has";
  auto heard = hear(2);
  ASSERT_EQ(heard.size(), 2u);
  const std::array<std::byte, 4> words{std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}};
  for (std::size_t at = 0; at < words.size(); ++at) {
    say(heard[0].socket, std::span(words).subspan(at, 1));
    bool whole = false;
    for (int tries = 0; tries < 100 && !whole; ++tries) whole = caller.hear(answer).value();
    EXPECT_EQ(whole, at % 2 == 1);
  }
  EXPECT_EQ(answer[1], words[3]);
  EXPECT_EQ(caller.take_sockets().size(), 2u);
  EXPECT_FALSE(caller.hear(answer).value());
  clock_.time += seconds(60);
  EXPECT_FALSE(caller.begin_try());
}

TEST_F(Meeting, ADialTriesAgainAndReportsTheFirstFailure) {
  const std::vector<net::Endpoint> endpoints = invitation_.endpoints;
  reception_.reset();
  Dial caller = dial(endpoints);
  std::array<std::byte, 1> answer{};
  int tries = 0;
  for (int polls = 0; polls < 10'000; ++polls) {
    Result<bool> heard = false;
    if (caller.begin_try()) {
      ++tries;
      if (const auto opened = caller.open(hello_with({})); !opened) heard = tl::unexpected(opened.error());
    }
    if (heard) heard = caller.hear(answer);
    if (heard) {
      clock_.time += milliseconds(1);
      continue;
    }
    const auto end = caller.failed(heard.error());
    if (end) continue;
    EXPECT_EQ(end.error().code, ErrorCode::kRemote);
    EXPECT_THAT(end.error().message, ::testing::AllOf(HasSubstr("test: connect to 127.0.0.1:"), HasSubstr(" from lo: "),
                                                      HasSubstr("refused")));
    EXPECT_GE(tries, 15);
    EXPECT_LE(tries, 21);
    return;
  }
  FAIL() << "it goes on forever";
}

// A caller that polls on after the end learns the same again, and nobody is dialed.
TEST_F(Meeting, ADialThatHasFailedForGoodRepeatsItsError) {
  Dial caller = dial(invitation_.endpoints);
  std::array<std::byte, 1> answer{};
  ASSERT_TRUE(caller.begin_try());
  ASSERT_TRUE(caller.open(hello_with(invitation_.token)));
  const auto end = caller.failed({ErrorCode::kInvalidUsage, "the first"});
  ASSERT_FALSE(end);
  EXPECT_EQ(end.error().message, "the first");
  hear_nobody();
  const int strangers = strangers_;
  for (int polls = 0; polls < 3; ++polls) {
    EXPECT_FALSE(caller.begin_try());
    const auto heard = caller.hear(answer);
    ASSERT_FALSE(heard);
    EXPECT_EQ(heard.error().message, "the first");
    EXPECT_EQ(heard.error().code, ErrorCode::kInvalidUsage);
    const auto opened = caller.open(hello_with(invitation_.token));
    ASSERT_FALSE(opened);
    EXPECT_EQ(opened.error().message, "the first");
    const auto again = caller.failed({ErrorCode::kRemote, "another"});
    ASSERT_FALSE(again);
    EXPECT_EQ(again.error().message, "the first");
    clock_.time += seconds(60);
  }
  hear_nobody();
  EXPECT_EQ(strangers_, strangers) << "nobody was dialed";
}

TEST_F(Meeting, ADialSaysWhenNobodyTookItsHello) {
  Dial caller = dial(invitation_.endpoints);
  std::array<std::byte, 1> answer{};
  ASSERT_TRUE(caller.begin_try());
  ASSERT_TRUE(caller.open(hello_with({})));
  Result<bool> heard = false;
  for (int polls = 0; polls < 1000 && heard; ++polls) {
    heard = caller.hear(answer);
    hear_nobody();
  }
  ASSERT_FALSE(heard);
  EXPECT_THAT(heard.error().message, HasSubstr("closed the connection before accepting it"));
  EXPECT_EQ(strangers_, 1);
}

TEST(Caller, SaysWhatCannotWork) {
  const auto addresses = net::find_interfaces("=lo", net::Family::kIpv4, "/sys").value().front().addresses;
  const Caller caller{"test", "lo", addresses};
  EXPECT_EQ(caller.reachable({{.ipv6 = true, .port = 1}, {.ipv6 = false, .port = 2}}).value().front().port, 2);
  EXPECT_EQ(caller.reachable({{.ipv6 = true, .port = 1}}).error().message,
            "test: lo has no address of the family to reach [::]:1; see CLUSTAR_SOCKET_FAMILY");
  EXPECT_THAT(caller.not_a_handle().message, ::testing::StartsWith("test: this is not a handle of clustar's test tr"));
  SharedConfig here, there;
  EXPECT_TRUE(caller.compare(here, there, addresses.front()));
  here.digest.words[0] = 1;
  there.digest.words[0] = 2;
  const auto differs = caller.compare(here, there, addresses.front());
  ASSERT_FALSE(differs);
  EXPECT_THAT(differs.error().message, ::testing::StartsWith("test: connect to 127.0.0.1:0: "));
}

}  // namespace
}  // namespace clustar::transport::handshake
