// What MltTransport promises with a pre-shared key: who gets in, and that nothing else is placed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <mutex>
#include <thread>

#include "mlt/core/wire.h"
#include "mlt/driver/handshake.h"
#include "mlt/driver/mlt_transport.h"
#include "mlt/driver/udp_device.h"
#include "tests/conformance/transport_under_test.h"
#include "tests/psk_file.h"
#include "transport/base/system_clock.h"
#include "transport/crypto/crypto.h"
#include "transport/io/decorators/faulty_io.h"
#include "transport/io/decorators/forwarding_io.h"

namespace clustar::transport::conformance {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
namespace driver = mlt::driver;

class TurnedClock final : public Clock {
 public:
  TimePoint now() const override { return system_.now() + Duration(ahead_.load()); }
  void advance(Duration by) { ahead_ += by.count(); }

 private:
  SystemClock system_;
  std::atomic<std::int64_t> ahead_{0};
};

// Somebody between the hosts: every packet that comes in is followed by what `forge` makes of it, as often as it makes
// something, on the same or another path.
class ForgingIo final : public io::ForwardingIo {
 public:
  struct Forgery {
    std::vector<std::byte> header;
    std::vector<std::byte> payload;
    std::uint8_t path;
  };
  using Forge = std::function<std::optional<Forgery>(Forgery genuine)>;
  ForgingIo(std::unique_ptr<io::PacketIo> inner, Forge forge, std::atomic<std::uint64_t>& forged)
      : ForwardingIo(std::move(inner)), forge_(std::move(forge)), forged_(forged) {}

  Result<std::size_t> receive(std::span<io::RxPacket> packets) override {
    kept_.clear();
    const auto got = ForwardingIo::receive(packets.first(packets.size() / 2));
    if (!got) return got;
    genuine_ = *got;
    std::size_t all = *got;
    for (std::size_t i = 0; i < genuine_; ++i) {
      const io::RxPacket& packet = packets[i];
      auto forgery = forge_(
          {{packet.header.begin(), packet.header.end()}, {packet.payload.begin(), packet.payload.end()}, packet.path});
      if (!forgery) continue;
      kept_.push_back(std::make_unique<Forgery>(std::move(*forgery)));
      packets[all] = packet;
      packets[all].header = kept_.back()->header;
      packets[all].payload = kept_.back()->payload;
      packets[all].path = kept_.back()->path;
      ++all;
      ++forged_;
    }
    // The forgeries first: what is believed would keep the genuine ones out.
    std::rotate(packets.begin(), packets.begin() + static_cast<std::ptrdiff_t>(genuine_),
                packets.begin() + static_cast<std::ptrdiff_t>(all));
    forgeries_ = all - genuine_;
    return all;
  }
  void release(std::span<const io::RxPacket> packets) override { ForwardingIo::release(packets.subspan(forgeries_)); }

 private:
  const Forge forge_;
  std::atomic<std::uint64_t>& forged_;
  std::vector<std::unique_ptr<Forgery>> kept_;
  std::size_t genuine_ = 0;
  std::size_t forgeries_ = 0;
};

class CountingIo final : public io::ForwardingIo {
 public:
  CountingIo(std::unique_ptr<io::PacketIo> inner, std::atomic<std::uint64_t>& sent)
      : ForwardingIo(std::move(inner)), sent_(sent) {}
  Result<std::size_t> send(std::span<const io::TxPacket> packets) override {
    const auto sent = ForwardingIo::send(packets);
    if (sent) sent_ += *sent;
    return sent;
  }

 private:
  std::atomic<std::uint64_t>& sent_;
};

class MltPsk : public ::testing::TestWithParam<const char*> {
 protected:
  using Wrap = std::function<std::unique_ptr<io::PacketIo>(std::unique_ptr<io::PacketIo>)>;

  void SetUp() override {
    if (const auto opened = crypto::Crypto::open(); !opened) GTEST_SKIP() << opened.error().message;
  }
  // `mode`: empty for no pre-shared key.
  std::unique_ptr<Transport> create(const std::string& mode, const std::string& secret = "a secret of the tests",
                                    const Wrap& wrap = {}) {
    const tests::PskFile file(secret);
    Config config;
    config.socket_ifname = "=lo";
    config.socket_family = "ipv4";
    if (!mode.empty()) {
      config.psk_file = file.path();
      config.psk_mode = mode;
    }
    const auto open = [wrap](const net::Interface& interface, const net::Address& local) {
      auto device = driver::open_udp_device(interface, local);
      if (device && wrap) device->io = wrap(std::move(device->io));
      return device;
    };
    return std::move(driver::MltTransport::create(config, clock_, {}, open).value());
  }
  Wrap counting() {
    return [this](auto inner) { return std::make_unique<CountingIo>(std::move(inner), sent_); };
  }
  static void transfer(Connection& connection, std::size_t size, unsigned seed = 1) {
    SendBuffer from(*connection.send, size, seed);
    RecvBuffer to(*connection.recv, size);
    finish({must_recv(*connection.recv, {{to.mr.get(), 0, size, 0}}), must_send(*connection.send, *from.mr, 0, size)});
    ASSERT_EQ(from.bytes, to.bytes);
  }
  // Transfers while somebody forges what `there` receives; the receiving transport's summary.
  std::string transfer_despite(const ForgingIo::Forge& forge) {
    forged_ = 0;
    const auto here = create(GetParam());
    const auto there = create(GetParam(), "a secret of the tests", [&](auto inner) {
      return std::make_unique<ForgingIo>(std::move(inner), forge, forged_);
    });
    {
      Connection connection = connect(*here, *there);
      for (const unsigned seed : {1u, 2u, 3u}) transfer(connection, 300'000, seed);
    }
    EXPECT_GT(forged_, 50u);
    return there->summary();
  }
  // No strangers, so each packet counts as one of the two.
  std::string counts(std::uint64_t unauthenticated, std::uint64_t replayed) {
    return " " + std::to_string(unauthenticated) + " unauthenticated and " + std::to_string(replayed) + " replayed";
  }

  TurnedClock clock_;
  std::atomic<std::uint64_t> sent_{0};
  std::atomic<std::uint64_t> forged_{0};
};

TEST_P(MltPsk, CleanTrafficIsAllGenuine) {
  const auto here = create(GetParam());
  const auto there = create(GetParam());
  Connection connection = connect(*here, *there);
  for (const std::size_t size : {0ul, 1ul, 9000ul, 100'000ul, 3'000'000ul}) transfer(connection, size);
  EXPECT_THAT(there->summary(), HasSubstr(counts(0, 0)));
  EXPECT_THAT(here->summary(), HasSubstr(counts(0, 0)));
}

TEST_P(MltPsk, ATamperedHeaderIsDropped) {
  std::size_t at = 0;
  const auto summary = transfer_despite([&](ForgingIo::Forgery packet) {
    // Not the first 12 bytes: with another secret it would be a stranger's.
    packet.header[12 + at++ % (packet.header.size() - 12)] ^= std::byte{4};
    return std::optional(packet);
  });
  EXPECT_THAT(summary, HasSubstr(" 0 bytes missing"));
  // A counter made smaller counts as replayed.
  EXPECT_THAT(summary, ::testing::Not(HasSubstr(" 0 unauthenticated")));
}

TEST_P(MltPsk, ATamperedTagIsDropped) {
  const auto summary = transfer_despite([&](ForgingIo::Forgery packet) {
    packet.header.back() ^= std::byte{1};
    return std::optional(packet);
  });
  EXPECT_THAT(summary, HasSubstr(counts(forged_, 0)));
}

TEST_P(MltPsk, ATamperedPayloadIsDropped) {
  const auto summary = transfer_despite([&](ForgingIo::Forgery packet) -> std::optional<ForgingIo::Forgery> {
    if (packet.payload.empty()) return std::nullopt;
    packet.payload[packet.payload.size() / 2] ^= std::byte{1};
    return packet;
  });
  EXPECT_THAT(summary, HasSubstr(counts(forged_, 0)));
}

TEST_P(MltPsk, AReplayedPacketIsDropped) {
  std::optional<ForgingIo::Forgery> before;
  const auto summary = transfer_despite([&](ForgingIo::Forgery packet) { return std::exchange(before, packet); });
  EXPECT_THAT(summary, HasSubstr(counts(0, forged_)));
}

TEST_P(MltPsk, APacketOfAnotherPathIsDropped) {
  const auto summary = transfer_despite([&](ForgingIo::Forgery packet) {
    packet.path = static_cast<std::uint8_t>((packet.path + 1) % 8);
    return std::optional(packet);
  });
  // Some count as replayed, by what was seen on that path.
  EXPECT_THAT(summary, AllOf(HasSubstr(" 0 bytes missing"), ::testing::Not(HasSubstr(" 0 unauthenticated"))));
}

TEST_P(MltPsk, PacketsOfAConnectionThatIsOverAreDropped) {
  std::vector<ForgingIo::Forgery> old;
  bool replay = false;
  std::size_t next = 0;
  const auto forge = [&](ForgingIo::Forgery packet) -> std::optional<ForgingIo::Forgery> {
    if (!replay) {
      old.push_back(packet);
      return std::nullopt;
    }
    if (next == old.size()) return std::nullopt;
    ForgingIo::Forgery again = old[next++];
    std::copy_n(packet.header.begin() + 4, 8, again.header.begin() + 4);  // the new connection's secret
    return again;
  };
  const auto here = create(GetParam());
  const auto there = create(GetParam(), "a secret of the tests",
                            [&](auto inner) { return std::make_unique<ForgingIo>(std::move(inner), forge, forged_); });
  {
    Connection connection = connect(*here, *there);
    transfer(connection, 500'000, 1);
  }
  Connection connection = connect(*here, *there);
  replay = true;
  for (const unsigned seed : {2u, 3u}) transfer(connection, 500'000, seed);
  EXPECT_GT(next, 50u);
  EXPECT_THAT(there->summary(), ::testing::Not(HasSubstr(" 0 unauthenticated")));
}

TEST_P(MltPsk, LossCorruptionAndDuplicatesCostTimeOnly) {
  const auto bad = [](std::uint64_t seed) {
    return [seed](std::unique_ptr<io::PacketIo> inner) -> std::unique_ptr<io::PacketIo> {
      io::FaultSpec spec;
      spec.loss = 0.03;
      spec.duplicate = 0.03;
      spec.reorder = 0.03;
      spec.corrupt = 0.03;
      spec.seed = seed;
      return std::move(io::FaultyIo::create(std::move(inner), spec).value());
    };
  };
  const auto here = create(GetParam(), "a secret of the tests", bad(1));
  const auto there = create(GetParam(), "a secret of the tests", bad(2));
  Connection connection = connect(*here, *there);
  for (const std::size_t size : {0ul, 1ul, 9000ul, 100'000ul, 3'000'000ul}) transfer(connection, size);
  EXPECT_THAT(there->summary(), AllOf(HasSubstr(" 0 bytes missing"), ::testing::Not(HasSubstr(" 0 unauthenticated")),
                                      ::testing::Not(HasSubstr(" 0 replayed"))));
}

// Says that it sent what it threw away.
class MuteIo final : public io::ForwardingIo {
 public:
  MuteIo(std::unique_ptr<io::PacketIo> inner, const std::atomic<bool>& quiet)
      : ForwardingIo(std::move(inner)), quiet_(quiet) {}
  Result<std::size_t> send(std::span<const io::TxPacket> packets) override {
    return quiet_ ? Result<std::size_t>(packets.size()) : ForwardingIo::send(packets);
  }

 private:
  const std::atomic<bool>& quiet_;
};

// As mlt_driver_test, over the sealed words on the TCP connection.
TEST_P(MltPsk, WhoClosesLeavesNoDoubtAboutWhatArrived) {
  std::atomic<bool> mute{false};
  const auto here = create(GetParam());
  const auto there = create(GetParam(), "a secret of the tests",
                            [&](auto inner) { return std::make_unique<MuteIo>(std::move(inner), mute); });
  Connection connection = connect(*here, *there);
  SendBuffer from(*connection.send, 9000, 1);
  RecvBuffer to(*connection.recv, 9000);
  Request* receive = must_recv(*connection.recv, {{to.mr.get(), 0, 9000, 0}});
  ASSERT_FALSE(poll_until([&] { return receive->test().value().done; }, milliseconds(20)));
  mute = true;
  Request* send = must_send(*connection.send, *from.mr, 0, 9000);
  ASSERT_TRUE(poll_until([&] { return receive->test().value().done; }));
  EXPECT_FALSE(send->test().value().done);
  connection.recv.reset();
  finish({send});
  EXPECT_EQ(from.bytes, to.bytes);
}

TEST_P(MltPsk, WhoClosesRepeatsWhatWasDoneAndDidNotArrive) {
  std::atomic<bool> mute{true};
  const auto here = create(GetParam(), "a secret of the tests",
                           [&](auto inner) { return std::make_unique<MuteIo>(std::move(inner), mute); });
  const auto there = create(GetParam());
  for (const bool posted_before : {true, false}) {
    Connection connection = connect(*here, *there);
    SendBuffer from(*connection.send, 3000, 1);
    RecvBuffer to(*connection.recv, 3000);
    std::vector<Request*> receives;
    const auto post = [&] {
      for (std::size_t i = 0; i < 3; ++i) {
        receives.push_back(must_recv(*connection.recv, {{to.mr.get(), i * 1000, 1000, 0}}));
      }
    };
    if (posted_before) post();
    for (std::size_t i = 0; i < 3; ++i) finish({must_send(*connection.send, *from.mr, i * 1000, 1000)});
    connection.send.reset();
    if (!posted_before) post();
    finish(receives);
    EXPECT_EQ(from.bytes, to.bytes);
  }
}

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

TEST_P(MltPsk, OneSideWithoutAKeyIsAnErrorOnBothSides) {
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

TEST_P(MltPsk, AnotherSecretIsAnErrorOnBothSides) {
  const auto one = create(GetParam(), "a secret of the tests", counting());
  const auto other = create(GetParam(), "another secret of the tests", counting());
  const Failures failures = fail_to_connect(*one, *other);
  for (const std::string& text : {failures.connecting, failures.accepting}) {
    EXPECT_THAT(text, AllOf(HasSubstr("psk_file: the peer's secret is another"), HasSubstr("127.0.0.1:")));
    EXPECT_THAT(text, ::testing::Not(HasSubstr("of the tests")));
  }
  EXPECT_EQ(sent_, 0u);
}

TEST_P(MltPsk, AnotherModeIsAnErrorOnBothSides) {
  const std::string theirs = std::string(GetParam()) == "encrypt" ? "authenticate" : "encrypt";
  const auto one = create(GetParam(), "a secret of the tests", counting());
  const auto other = create(theirs, "a secret of the tests", counting());
  const Failures failures = fail_to_connect(*one, *other);
  EXPECT_THAT(failures.connecting, HasSubstr("psk_mode is " + std::string(GetParam()) + " here and " + theirs));
  EXPECT_THAT(failures.accepting, HasSubstr("psk_mode is " + theirs + " here and " + GetParam()));
  EXPECT_EQ(sent_, 0u);
}

net::Socket dial(const Handle& handle) {
  const net::Address address(driver::HandleInfo::parse(handle)->endpoint);
  net::Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(::connect(socket.fd(), address.raw(), address.length()), 0);
  const timeval limit{10, 0};
  setsockopt(socket.fd(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  return socket;
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

TEST_P(MltPsk, AHandshakePlayedAgainOpensNothing) {
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
  // Who stays silent after the welcome is dropped in time, and harms nobody meanwhile.
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

TEST_P(MltPsk, NothingIsSentBeforeTheHandshakeIsOver) {
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

INSTANTIATE_TEST_SUITE_P(Modes, MltPsk, ::testing::Values("authenticate", "encrypt"),
                         [](const auto& mode) { return std::string(mode.param); });

}  // namespace
}  // namespace clustar::transport::conformance
