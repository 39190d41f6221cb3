// What MltTransport promises beyond transport.h: who gets in, how peers end, what happens while packets are lost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <thread>

#include "mlt/core/wire.h"
#include "mlt/driver/handshake.h"
#include "tests/conformance/mlt_bed.h"
#include "tests/conformance/udp_io_pair.h"
#include "transport/io/decorators/faulty_io.h"
#include "transport/io/decorators/forwarding_io.h"
#include "transport/io/udp/address.h"

namespace clustar::transport::conformance {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

// Takes one packet in three calls.
class NarrowIo final : public io::ForwardingIo {
 public:
  NarrowIo(std::unique_ptr<io::PacketIo> inner, std::atomic<std::uint64_t>& refused)
      : ForwardingIo(std::move(inner)), refused_(refused) {}
  Result<std::size_t> send(std::span<const io::TxPacket> packets) override {
    if (++calls_ % 3 != 0) {
      ++refused_;
      return 0;
    }
    return ForwardingIo::send(packets.first(std::min<std::size_t>(packets.size(), 1)));
  }

 private:
  std::atomic<std::uint64_t>& refused_;
  int calls_ = 0;
};

// Counts the calls that brought something.
class CountingIo final : public io::ForwardingIo {
 public:
  CountingIo(std::unique_ptr<io::PacketIo> inner, std::atomic<int>& calls)
      : ForwardingIo(std::move(inner)), calls_(calls) {}
  Result<std::size_t> send(std::span<const io::TxPacket> packets) override {
    ++calls_;
    return ForwardingIo::send(packets);
  }

 private:
  std::atomic<int>& calls_;
};

class MltDriver : public MltBed {
 protected:
  std::unique_ptr<Transport> create(const std::string& engine = "auto", const Wrap& wrap = {}) {
    return MltBed::create({.engine = engine, .wrap = wrap});
  }
};

net::Socket greet(const Handle& handle, const driver::Token& token) {
  const auto info = driver::HandleInfo::parse(handle).value();
  driver::Hello hello;
  hello.token = token;
  hello.connection_id = 1;
  hello.settings = info.settings;
  hello.address = io::udp::UdpBlob{{}, std::vector<std::uint16_t>(info.settings.paths, 9)}.serialize();
  std::array<std::byte, driver::Hello::kSize> bytes;
  hello.serialize_to(bytes);
  net::Socket socket = dial(handle);
  EXPECT_EQ(::send(socket.fd(), bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
  return socket;
}

TEST_F(MltDriver, StrangersAtTheListenerAreDroppedAndPeersGetIn) {
  const auto transport = create();
  auto listener = std::move(transport->listen(0, {}).value());
  const net::Socket silent = dial(listener->handle());
  const net::Socket loud = dial(listener->handle());
  const std::vector<std::byte> garbage(500, std::byte{'x'});
  ::send(loud.fd(), garbage.data(), garbage.size(), MSG_NOSIGNAL);
  driver::Token wrong = driver::HandleInfo::parse(listener->handle())->token;
  wrong[3] ^= std::byte{1};
  const net::Socket guesser = greet(listener->handle(), wrong);
  std::unique_ptr<SendChannel> send;
  std::unique_ptr<RecvChannel> recv;
  auto pending = std::move(transport->connect(0, listener->handle(), {}).value());
  ASSERT_TRUE(poll_until([&] {
    if (!send) send = std::move(pending->poll().value());
    if (!recv) recv = std::move(listener->poll_accept().value());
    return send && recv;
  }));
  Connection connection{std::move(send), std::move(recv)};
  transfer(connection, 100000);
  EXPECT_TRUE(poll_until([&] {
    EXPECT_EQ(listener->poll_accept().value(), nullptr);
    return transport->summary().find(" 2 strangers") != std::string::npos;
  })) << transport->summary();
  clock_.advance(seconds(6));
  EXPECT_EQ(listener->poll_accept().value(), nullptr);
  EXPECT_THAT(transport->summary(), HasSubstr(" 3 strangers")) << "who says nothing for 5 s";
}

TEST_F(MltDriver, SettingsThatDifferAreNamedWithBothValues) {
  const auto transport = create();
  auto listener = std::move(transport->listen(0, {}).value());
  auto info = driver::HandleInfo::parse(listener->handle()).value();
  const std::string segment = std::to_string(info.settings.segment);
  info.settings.segment = 1344;
  const auto refused = transport->connect(0, info.serialize(), {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidUsage);
  EXPECT_THAT(refused.error().message, ::testing::AllOf(HasSubstr("segment"), HasSubstr(segment), HasSubstr("1344")));
}

TEST_F(MltDriver, AMessageOfMoreThanAGibibyteIsRefusedByName) {
  const auto transport = create();
  Connection connection = connect(*transport, *transport);
  SendBuffer from(*connection.send, 100, 1);
  const auto refused = connection.send->send(*from.mr, 0, (std::size_t{1} << 30) + 1, 0, {});
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("1 GiB"));
  transfer(connection, 100);
}

TEST_F(MltDriver, APeerWhoseConnectionIsResetIsAnErrorThatNamesItAtOnce) {
  for (const char* engine : {"auto", "inline", "thread"}) {
    const auto transport = create(engine);
    auto listener = std::move(transport->listen(0, {}).value());
    net::Socket peer = greet(listener->handle(), driver::HandleInfo::parse(listener->handle())->token);
    std::unique_ptr<RecvChannel> recv;
    ASSERT_TRUE(poll_until([&] {
      recv = std::move(listener->poll_accept().value());
      return recv != nullptr;
    }));
    RecvBuffer to(*recv, 100);
    Request* request = must_recv(*recv, {{to.mr.get(), 0, 100, 0}});
    const linger at_once{1, 0};
    setsockopt(peer.fd(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    peer.close();
    const Error error = await_error(*request, seconds(3));
    EXPECT_EQ(error.code, ErrorCode::kRemote) << engine;
    EXPECT_THAT(error.message, HasSubstr("127.0.0.1:")) << engine;
  }
}

TEST_F(MltDriver, ASilentPeerOnALiveHostIsNamedAfterTenSecondsAndNeverFails) {
  const auto transport = create("inline");
  Connection connection = connect(*transport, *transport);
  RecvBuffer to(*connection.recv, 64);
  Request* recv = must_recv(*connection.recv, {{to.mr.get(), 0, 64, 0}});
  const auto poll = [&] { ASSERT_FALSE(poll_until([&] { return recv->test().value().done; }, milliseconds(20))); };
  poll();
  clock_.advance(seconds(9));
  poll();
  EXPECT_EQ(take_warnings(), "");
  clock_.advance(seconds(2));
  poll();
  EXPECT_THAT(take_warnings(), ::testing::AllOf(HasSubstr("straggler: 127.0.0.1:"), HasSubstr("1 receives")));
  SendBuffer from(*connection.send, 64, 1);
  finish({must_send(*connection.send, *from.mr, 0, 64), recv});
  EXPECT_EQ(from.bytes, to.bytes);
}

// What the last acknowledgements said must not depend on packets that nobody would send again.
TEST_F(MltDriver, WhoClosesLeavesNoDoubtAboutWhatArrived) {
  std::atomic<bool> mute{false};
  const auto here = create();
  const auto there = create(
      "auto", [&](std::unique_ptr<io::PacketIo> inner) { return std::make_unique<MuteIo>(std::move(inner), mute); });
  Connection connection = connect(*here, *there);
  constexpr std::size_t kSize = 9000;  // too long to be copied, when the send is done
  constexpr std::size_t kCount = 3;    // within the first window, since nothing is acknowledged
  SendBuffer from(*connection.send, kSize, 1);
  RecvBuffer to(*connection.recv, (kCount + 1) * kSize);
  Request* kept = must_recv(*connection.recv, {{to.mr.get(), kCount * kSize, kSize, 99}});  // never filled
  std::vector<Request*> receives;
  for (std::size_t i = 0; i < kCount; ++i) {
    receives.push_back(must_recv(*connection.recv, {{to.mr.get(), i * kSize, kSize, static_cast<int>(i % 3)}}));
  }
  ASSERT_FALSE(poll_until([&] { return kept->test().value().done; }, milliseconds(20)));
  mute = true;
  std::vector<Request*> sends;
  for (std::size_t i = 0; i < kCount; ++i) {
    sends.push_back(must_send(*connection.send, *from.mr, 0, kSize, static_cast<int>(i % 3)));
  }
  std::size_t arrived = 0;
  ASSERT_TRUE(poll_until([&] {
    for (Request*& receive : receives) {
      if (receive == nullptr || !receive->test().value().done) continue;
      receive = nullptr;
      ++arrived;
    }
    for (Request* send : sends) EXPECT_FALSE(send->test().value().done);
    return arrived == receives.size() || ::testing::Test::HasFailure();
  }));
  connection.recv.reset();
  finish(sends);
}

// Sends of short messages are done before anything has arrived.
TEST_F(MltDriver, WhoClosesRepeatsWhatWasDoneAndDidNotArrive) {
  std::atomic<bool> mute{true};
  const auto here = create(
      "auto", [&](std::unique_ptr<io::PacketIo> inner) { return std::make_unique<MuteIo>(std::move(inner), mute); });
  const auto there = create();
  for (const std::size_t size : {std::size_t{0}, std::size_t{3}, std::size_t{4096}}) {
    for (const bool posted_before : {true, false}) {
      Connection connection = connect(*here, *there);
      constexpr std::size_t kCount = 20;
      SendBuffer from(*connection.send, kCount * size + 1, 7);
      RecvBuffer to(*connection.recv, kCount * size + 1);
      std::vector<Request*> receives, sends;
      const auto post = [&] {
        for (std::size_t i = 0; i < kCount; ++i) {
          receives.push_back(must_recv(*connection.recv, {{to.mr.get(), i * size, size, static_cast<int>(i % 3)}}));
        }
      };
      if (posted_before) post();
      for (std::size_t i = 0; i < kCount; ++i) {
        sends.push_back(must_send(*connection.send, *from.mr, i * size, size, static_cast<int>(i % 3)));
      }
      finish(sends);
      const std::vector<std::byte> sent(from.bytes.begin(), from.bytes.end() - 1);
      from.mr.reset();  // nothing reads it any more
      std::ranges::fill(from.bytes, std::byte{0xdd});
      connection.send.reset();
      if (!posted_before) post();
      finish(receives);
      EXPECT_TRUE(std::ranges::equal(sent, std::span(to.bytes).first(kCount * size)));
      // What was not sent does not come.
      const auto more = connection.recv->recv(std::array{RecvPart{to.mr.get(), 0, 1, 0}});
      const auto fails = [&] { return !more || *more == nullptr || !(*more)->test(); };
      EXPECT_TRUE(poll_until(fails));
    }
  }
}

TEST_F(MltDriver, WhatIsRepeatedIsMoreThanASmallBufferTakes) {
  std::atomic<bool> mute{true};
  bool small = false;
  const std::string skip = io::udp::in_own_network([&] {
    small = io::udp::shell("for f in tcp_wmem tcp_rmem; do echo 4096 4096 4096 > /proc/sys/net/ipv4/$f || exit; done");
    if (!small) return;
    const auto here = create(
        "auto", [&](std::unique_ptr<io::PacketIo> inner) { return std::make_unique<MuteIo>(std::move(inner), mute); });
    const auto there = create();
    Connection connection = connect(*here, *there);
    constexpr std::size_t kCount = 32;
    constexpr std::size_t kSize = 4096;
    SendBuffer from(*connection.send, kCount * kSize, 7);
    RecvBuffer to(*connection.recv, kCount * kSize);
    for (std::size_t i = 0; i < kCount; ++i) {
      finish({must_send(*connection.send, *from.mr, i * kSize, kSize)});
    }
    connection.send.reset();
    for (std::size_t i = 0; i < kCount; ++i) {
      finish({must_recv(*connection.recv, {{to.mr.get(), i * kSize, kSize, 0}})});
    }
    EXPECT_EQ(from.bytes, to.bytes);
  });
  if (!small) GTEST_SKIP() << (skip.empty() ? "needs /proc/sys to be writable" : skip);
}

// What is repeated finds no room there before its receive, and no one to send it once more.
TEST_F(MltDriver, WhatWasRepeatedWaitsForItsReceive) {
  std::atomic<bool> mute{false};
  const auto here = create(
      "auto", [&](std::unique_ptr<io::PacketIo> inner) { return std::make_unique<MuteIo>(std::move(inner), mute); });
  const auto there = create();
  Connection connection = connect(*here, *there);
  constexpr std::size_t kKept = 64;  // Options::max_staged
  constexpr std::size_t kCount = kKept + 20;
  constexpr std::size_t kSize = 2000;
  SendBuffer from(*connection.send, kCount * kSize, 3);
  RecvBuffer to(*connection.recv, kCount * kSize);
  const auto send = [&](std::size_t i) { finish({must_send(*connection.send, *from.mr, i * kSize, kSize)}); };
  for (std::size_t i = 0; i < kKept; ++i) send(i);
  ASSERT_TRUE(poll_until([&] { return here->summary().find("sent 64 messages") != std::string::npos; }))
      << here->summary();
  mute = true;
  for (std::size_t i = kKept; i < kCount; ++i) send(i);
  connection.send.reset();
  // Its words are heard before the receives are posted, but for the first.
  for (std::size_t i = 0; i < kCount; ++i) {
    finish({must_recv(*connection.recv, {{to.mr.get(), i * kSize, kSize, 0}})});
    if (i == 0) std::this_thread::sleep_for(milliseconds(20));
  }
  EXPECT_EQ(from.bytes, to.bytes);
}

TEST_F(MltDriver, LossDuplicatesAndReorderingCostTimeOnly) {
  const auto bad = [](std::uint64_t seed) {
    return [seed](std::unique_ptr<io::PacketIo> inner) -> std::unique_ptr<io::PacketIo> {
      io::FaultSpec spec;
      spec.loss = 0.05;
      spec.duplicate = 0.02;
      spec.reorder = 0.02;
      spec.seed = seed;
      return std::move(io::FaultyIo::create(std::move(inner), spec).value());
    };
  };
  const auto here = create("auto", bad(1));
  const auto there = create("auto", bad(2));
  Connection connection = connect(*here, *there);
  for (const std::size_t size : {0ul, 1ul, 9000ul, 100000ul, 3000000ul}) transfer(connection, size);
  EXPECT_THAT(there->summary(), HasSubstr(" 0 bytes missing"));
}

TEST_F(MltDriver, ADeviceThatTakesLittleIsBackPressureAndNotLoss) {
  std::atomic<std::uint64_t> refused = 0;
  const auto narrow = [&](std::unique_ptr<io::PacketIo> inner) {
    return std::make_unique<NarrowIo>(std::move(inner), refused);
  };
  const auto transport = create("auto", narrow);
  Connection connection = connect(*transport, *transport);
  for (const std::size_t size : {100ul, 500000ul}) transfer(connection, size);
  // On a busy machine a timer may fire; each packet that was refused would be far more.
  EXPECT_LT(4 * transport->counters().devices.at(0).retransmitted, refused);
  for (int i = 0; i < 20; ++i) {  // with packets that wait for the device
    Connection doomed = connect(*transport, *transport);
    auto from = std::make_unique<SendBuffer>(*doomed.send, 300000, 1);
    RecvBuffer to(*doomed.recv, 300000);
    must_recv(*doomed.recv, {{to.mr.get(), 0, 300000, 0}});
    Request* send = must_send(*doomed.send, *from->mr, 0, 300000);
    if (i % 2 == 0) from.reset();
    static_cast<void>(send->test());
    doomed.send.reset();
  }
}

// Memory that would fault when somebody touched it afterwards.
TEST_F(MltDriver, NothingIsReadOrWrittenAfterClosingOrDeregistering) {
  constexpr std::size_t kSize = 4 << 20;
  for (const char* engine : {"auto", "thread"}) {
    const auto here = create(engine);
    const auto there = create(engine);
    for (int round = 0; round < 20; ++round) {
      Connection connection = connect(*here, *there);
      void* source = mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      void* target = mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      auto from = std::move(connection.send->reg_mr(gdr::MemoryRef::host(source, kSize)).value());
      auto to = std::move(connection.recv->reg_mr(gdr::MemoryRef::host(target, kSize)).value());
      Request* recv = must_recv(*connection.recv, {{to.get(), 0, kSize, 0}});
      Request* send = must_send(*connection.send, *from, 0, kSize);
      for (int i = 0; i < round * 10; ++i) {
        static_cast<void>(recv->test());
        if (send != nullptr && send->test().value_or(Progress{}).done) send = nullptr;
      }
      switch (round % 4) {
        case 0: connection.send.reset(); break;
        case 1: connection.recv.reset(); break;
        case 2: from.reset(); break;
        default: to.reset();
      }
      void* taken_back = round % 2 == 0 ? source : target;
      munmap(taken_back, kSize);
      std::this_thread::sleep_for(milliseconds(5));
      connection = {};
      munmap(taken_back == source ? target : source, kSize);
    }
    Connection next = connect(*here, *there);
    EXPECT_TRUE(transfer(next, 100000)) << engine;
  }
}

TEST_F(MltDriver, TheThreadTakesOverWhenCallersAreSilent) {
  for (const char* engine : {"auto", "thread"}) {
    const auto here = create("inline");
    const auto there = create(engine);
    Connection connection = connect(*here, *there);
    constexpr std::size_t kSize = 1 << 20;
    SendBuffer from(*connection.send, kSize, 1);
    RecvBuffer to(*connection.recv, kSize);
    Request* recv = must_recv(*connection.recv, {{to.mr.get(), 0, kSize, 0}});
    finish({must_send(*connection.send, *from.mr, 0, kSize)});  // nobody tests the receive
    EXPECT_EQ(from.bytes, to.bytes) << engine;
    finish({recv});
  }
}

TEST_F(MltDriver, InlineOnlyCallersMoveBytes) {
  const auto here = create("inline");
  const auto there = create("inline");
  Connection connection = connect(*here, *there);
  SendBuffer from(*connection.send, 1 << 20, 1);
  RecvBuffer to(*connection.recv, 1 << 20);
  Request* recv = must_recv(*connection.recv, {{to.mr.get(), 0, 1 << 20, 0}});
  Request* send = must_send(*connection.send, *from.mr, 0, 1 << 20);
  EXPECT_FALSE(poll_until([&] { return send->test().value().done; }, milliseconds(100)));
  finish({recv, send});
}

TEST_F(MltDriver, AnAcknowledgementTravelsWithTheAnswer) {
  std::atomic<int> calls{0};
  const auto here = create();
  const auto there = create("auto", [&](std::unique_ptr<io::PacketIo> inner) {
    return std::make_unique<CountingIo>(std::move(inner), calls);
  });
  Connection asks = connect(*here, *there);
  Connection answers = connect(*there, *here);
  constexpr int kRounds = 500;
  int rounds = 0;
  int calls_in_them = 0;
  for (int round = 0; round < kRounds; ++round) {
    const int before = calls;
    const auto start = std::chrono::steady_clock::now();
    transfer(asks, 64);
    transfer(answers, 64);
    // On a busy machine this thread is stopped for so long that it looks silent, and the other one acknowledges.
    if (std::chrono::steady_clock::now() - start > milliseconds(1)) continue;
    ++rounds;
    calls_in_them += calls - before;
  }
  if (rounds < 50) GTEST_SKIP() << "this machine is too busy: only " << rounds << " rounds took less than 1 ms";
  // One for the receive, one for the answer. Seldom one more, of the round before.
  EXPECT_LT(calls_in_them, 2 * rounds + rounds / 2);
}

// Nothing more is posted there: its thread acknowledges instead.
TEST_F(MltDriver, WhoTakesAMessageAndPostsNothingMoreAcknowledgesIt) {
  const auto here = create("inline");
  const auto there = create();
  for (const std::size_t size : {std::size_t{9000}, std::size_t{1} << 20}) {
    Connection connection = connect(*here, *there);
    SendBuffer from(*connection.send, size, 1);
    RecvBuffer to(*connection.recv, size);
    Request* recv = must_recv(*connection.recv, {{to.mr.get(), 0, size, 0}});
    Request* send = must_send(*connection.send, *from.mr, 0, size);
    ASSERT_TRUE(poll_until([&] {
      static_cast<void>(send->test().value().done);
      return recv->test().value().done;
    }));
    ASSERT_TRUE(poll_until([&] { return send->test().value().done; }));
  }
}

TEST_F(MltDriver, AShortSendWithoutAReceiveDoesNotWait) {
  const auto transport = create("inline");
  Connection connection = connect(*transport, *transport);
  for (const std::size_t size : {0, 64, 5000, 16 * 1024}) {
    SendBuffer from(*connection.send, size + 1, 1);
    RecvBuffer to(*connection.recv, size + 1);
    Request* const sent = must_send(*connection.send, *from.mr, 0, size);
    finish({sent, must_recv(*connection.recv, {{to.mr.get(), 0, size, 0}})});
  }
  EXPECT_EQ(transport->counters().devices.at(0).total.waits, 0u) << "they go ahead";
}

TEST_F(MltDriver, FourThreadsShareAnEngine) {
  for (const char* engine : {"auto", "inline", "thread"}) {
    const auto transport = create(engine);
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        Connection connection = connect(*transport, *transport);
        for (int round = 0; round < 10; ++round) transfer(connection, round % 2 == 0 ? 200000 : 64);
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(transport->counters().devices.at(0).total.received.messages, 40u) << engine;
  }
}

}  // namespace
}  // namespace clustar::transport::conformance
