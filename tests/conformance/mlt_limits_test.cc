// MltTransport at its bounds, and taken apart in every order.
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <numeric>
#include <random>
#include <thread>

#include "mlt/driver/handshake.h"
#include "tests/conformance/mlt_bed.h"
#include "tests/own_process.h"
#include "tests/sanitized.h"
#include "transport/io/udp/address.h"
#include "transport/net/socket.h"

namespace clustar::transport::conformance {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;
using tests::open_descriptors;
using tests::running_threads;

class MltLimits : public MltBed {};

// Memory whose pages can be taken away: a process that touches it afterwards crashes.
class Pages {
 public:
  explicit Pages(std::size_t size) : size_(size) {
    at_ = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    EXPECT_NE(at_, MAP_FAILED);
  }
  ~Pages() { take_away(); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  std::byte* bytes() const { return static_cast<std::byte*>(at_); }
  gdr::MemoryRef memory() const { return gdr::MemoryRef::host(bytes(), size_); }
  void take_away() {
    if (at_ != nullptr) munmap(std::exchange(at_, nullptr), size_);
  }

 private:
  std::size_t size_;
  void* at_;
};

net::Socket greet(const Handle& handle, std::uint64_t connection_id) {
  const auto info = driver::HandleInfo::parse(handle).value();
  driver::Hello hello;
  hello.token = info.token;
  hello.connection_id = connection_id;
  hello.settings = info.settings;
  hello.address = io::udp::UdpBlob{{}, std::vector<std::uint16_t>(info.settings.paths, 9)}.serialize();
  std::array<std::byte, driver::Hello::kSize> bytes;
  hello.serialize_to(bytes);
  const net::Address address(info.endpoint);
  net::Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(::connect(socket.fd(), address.raw(), address.length()), 0);
  EXPECT_EQ(::send(socket.fd(), bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
  return socket;
}

TEST_F(MltLimits, ThirtyTwoReceivesOfEightPartsTakeTheirSendsInAnyOrder) {
  constexpr std::size_t kGroups = 32;
  constexpr std::size_t kSends = kGroups * kMaxRecvParts;
  constexpr std::size_t kRoom = 20000;
  for (const char* engine : {"auto", "inline", "thread"}) {
    const auto transport = create({.engine = engine});
    Connection connection = connect(*transport, *transport);
    SendBuffer from(*connection.send, kRoom + kSends, 1);
    RecvBuffer to(*connection.recv, kSends * kRoom);
    std::mt19937 random(5);
    std::vector<std::size_t> sizes(kSends);
    for (std::size_t& size : sizes) size = random() % 3 == 0 ? 0 : random() % kRoom;
    std::vector<Request*> requests;
    for (std::size_t group = 0; group < kGroups; ++group) {
      std::vector<RecvPart> parts;
      for (std::size_t i = group * kMaxRecvParts; i < (group + 1) * kMaxRecvParts; ++i) {
        parts.push_back({to.mr.get(), i * kRoom, kRoom, static_cast<int>(i)});
      }
      requests.push_back(must_recv(*connection.recv, parts));
    }
    const RecvPart one{to.mr.get(), 0, 1, 9999};
    EXPECT_EQ(connection.recv->recv(std::span(&one, 1)).value(), nullptr) << "a 33rd";
    std::vector<std::size_t> order(kSends);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    for (const std::size_t i : order) {
      requests.push_back(must_send(*connection.send, *from.mr, i, sizes[i], static_cast<int>(i)));
    }
    const auto done = finish(requests);
    for (std::size_t i = 0; i < kSends; ++i) {
      EXPECT_EQ(done[i / kMaxRecvParts][i % kMaxRecvParts], sizes[i]);
      ASSERT_TRUE(std::equal(from.bytes.begin() + static_cast<long>(i),
                             from.bytes.begin() + static_cast<long>(i + sizes[i]),
                             to.bytes.begin() + static_cast<long>(i * kRoom)))
          << engine << ", message " << i;
    }
  }
}

// Tags match, not the order of sending: a receiver that waits for a later message first must get it.
TEST_F(MltLimits, ALongMessageWithoutAReceiveHoldsUpNoOtherTag) {
  constexpr std::size_t kLong = 4 << 20;
  for (const char* engine : {"auto", "inline", "thread"}) {
    const auto transport = create({.engine = engine});
    Connection connection = connect(*transport, *transport);
    SendBuffer from(*connection.send, kLong, 1);
    RecvBuffer to(*connection.recv, kLong);
    for (const std::size_t size : {std::size_t{0}, std::size_t{100}, std::size_t{50000}, kLong}) {
      Request* waits = must_send(*connection.send, *from.mr, 0, kLong, 1);
      Request* later = must_send(*connection.send, *from.mr, 0, size, 2);
      Request* first = must_recv(*connection.recv, {{to.mr.get(), 0, kLong, 2}});
      ASSERT_TRUE(poll_until([&] { return waits->test().value().done || first->test().value().done; }))
          << engine << ", " << size << " bytes";
      finish({later, must_recv(*connection.recv, {{to.mr.get(), 0, kLong, 1}}), waits});
      EXPECT_EQ(from.bytes, to.bytes);
    }
  }
}

// More than the receiver keeps without a receive, and than the sender keeps copies of.
TEST_F(MltLimits, ShortMessagesWithoutReceivesHoldUpNoOtherTag) {
  constexpr std::size_t kSize = 4096;
  constexpr std::size_t kSends = 200;
  for (const char* engine : {"auto", "inline", "thread"}) {
    const auto transport = create({.engine = engine});
    Connection connection = connect(*transport, *transport);
    SendBuffer from(*connection.send, kSize, 1);
    RecvBuffer to(*connection.recv, kSize);
    std::vector<Request*> sends;
    for (std::size_t i = 0; i < kSends; ++i) sends.push_back(must_send(*connection.send, *from.mr, 0, kSize, 1));
    sends.push_back(must_send(*connection.send, *from.mr, 0, kSize, 2));
    Request* first = must_recv(*connection.recv, {{to.mr.get(), 0, kSize, 2}});
    ASSERT_TRUE(poll_until([&] { return first->test().value().done; })) << engine;
    EXPECT_EQ(from.bytes, to.bytes);
    for (std::size_t i = 0; i < kSends; ++i) finish({must_recv(*connection.recv, {{to.mr.get(), 0, kSize, 1}})});
    finish(sends);
  }
}

TEST_F(MltLimits, EmptyMessagesAreMessages) {
  const auto transport = create({});
  Connection connection = connect(*transport, *transport);
  SendBuffer from(*connection.send, 100, 1);
  RecvBuffer to(*connection.recv, 100);
  for (int round = 0; round < 50; ++round) {
    std::vector<Request*> receives;
    std::vector<Request*> sends;
    std::vector<std::vector<std::size_t>> sizes;
    for (int i = 0; i < 30; ++i) {
      sizes.push_back({i % 10 == 9 ? 1u : 0u});
      // More room than comes, so that the size is the message's.
      const auto post = [&] { receives.push_back(must_recv(*connection.recv, {{to.mr.get(), 0, 2, -i}})); };
      if (i % 2 == 0) post();
      sends.push_back(must_send(*connection.send, *from.mr, 0, sizes.back()[0], -i));
      if (i % 2 == 1) post();
    }
    ASSERT_EQ(finish(receives), sizes);
    finish(sends);
  }
  // A null registration is enough where there is no byte.
  const RecvPart nothing{nullptr, 0, 0, 5};
  Request* recv = connection.recv->recv(std::span(&nothing, 1)).value();
  finish({recv, must_send(*connection.send, *from.mr, 100, 0, 5)});
}

TEST_F(MltLimits, AGibibyteIsAMessage) {
  constexpr std::size_t kGibibyte = std::size_t{1} << 30;
  constexpr std::size_t kKept = 1 << 20;
  const auto transport = create({});
  Connection connection = connect(*transport, *transport);
  const Pages source(kGibibyte);  // nearly all is the kernel's page of zeros
  std::mt19937 random(2);
  for (std::size_t i = 0; i < kKept; ++i) source.bytes()[i] = static_cast<std::byte>(random());
  const auto mr = std::move(connection.send->reg_mr(source.memory()).value());
  RecvBuffer to(*connection.recv, kKept + 64);
  Request* recv = must_recv(*connection.recv, {{to.mr.get(), 0, kKept, 0}});  // the rest is cut
  Request* send = must_send(*connection.send, *mr, 0, kGibibyte);
  EXPECT_EQ(finish({recv, send})[0][0], kKept);
  EXPECT_TRUE(std::equal(source.bytes(), source.bytes() + kKept, to.bytes.begin()));
  EXPECT_TRUE(std::all_of(to.bytes.begin() + kKept, to.bytes.end(), [](auto byte) { return byte == std::byte{0xee}; }));
  transfer(connection, 1000);
}

TEST_F(MltLimits, AConnectionHasFourThousandAndNinetySixTagsAndNamesOneMore) {
  for (const bool at_sender : {true, false}) {
    const auto transport = create({});
    Connection connection = connect(*transport, *transport);
    SendBuffer from(*connection.send, 1, 1);
    RecvBuffer to(*connection.recv, 1);
    const auto tag_of = [](int i) {  // the ends of the range among them
      return i == 0 ? std::numeric_limits<int>::min() : i == 1 ? std::numeric_limits<int>::max() : i - 2000;
    };
    for (int i = 0; i < 4096 && !HasFailure(); ++i) {
      finish({must_recv(*connection.recv, {{to.mr.get(), 0, 1, tag_of(i)}}),
              must_send(*connection.send, *from.mr, 0, 1, tag_of(i))});
    }
    Request* request = at_sender ? must_send(*connection.send, *from.mr, 0, 1, 50000)
                                 : must_recv(*connection.recv, {{to.mr.get(), 0, 1, 50000}});
    const Error error = await_error(*request, seconds(3));
    EXPECT_EQ(error.code, ErrorCode::kInvalidUsage) << error.message;
    EXPECT_THAT(error.message, ::testing::AllOf(HasSubstr("tag 50000"), HasSubstr("4096")));
  }
}

// NCCL's abort comes at any moment: memory and ends go in every order, in the middle of messages both ways.
TEST_F(MltLimits, EveryOrderOfTakingAConnectionApartIsSafe) {
  constexpr std::size_t kSize = 2 << 20;
  for (const char* engine : {"auto", "inline", "thread"}) {
    const auto transport = create({.engine = engine});
    Connection witness = connect(*transport, *transport);
    std::array<int, 4> order{0, 1, 2, 3};
    int round = 0;
    do {
      Connection connection = connect(*transport, *transport);
      Pages source(kSize);
      Pages target(kSize);
      auto from = std::move(connection.send->reg_mr(source.memory()).value());
      auto to = std::move(connection.recv->reg_mr(target.memory()).value());
      Request* recv = must_recv(*connection.recv, {{to.get(), 0, kSize / 2, 0}, {to.get(), kSize / 2, kSize / 2, 1}});
      Request* first = must_send(*connection.send, *from, 0, kSize / 2, 1);
      must_send(*connection.send, *from, 0, kSize / 2, 0);
      for (int i = 0; i < round; ++i) static_cast<void>(i % 2 == 0 ? recv->test() : first->test());
      for (const int what : order) {
        switch (what) {
          case 0:
            from.reset();
            source.take_away();
            break;
          case 1:
            to.reset();
            target.take_away();
            break;
          case 2: connection.send.reset(); break;
          default: connection.recv.reset();
        }
        if (round % 3 == 0) transfer(witness, 70000);  // others go on meanwhile
      }
      ++round;
    } while (std::next_permutation(order.begin(), order.end()) && !HasFailure());
    EXPECT_EQ(round, 24);
    transfer(witness, 1 << 20);
  }
}

TEST_F(MltLimits, AListenerThatClosesWhileSomebodyConnectsIsAnErrorThere) {
  for (int polls = 0; polls < 6; ++polls) {
    const auto transport = create({});
    auto listener = std::move(transport->listen(0, {}).value());
    const auto pending = std::move(transport->connect(0, listener->handle(), {}).value());
    for (int i = 0; i < polls; ++i) ASSERT_EQ(pending->poll().value(), nullptr);
    std::unique_ptr<RecvChannel> accepted;
    if (polls % 2 == 1) accepted = std::move(listener->poll_accept().value());
    listener.reset();
    std::string error;
    ASSERT_TRUE(poll_until(
        [&] {
          auto polled = pending->poll();
          if (!polled) error = polled.error().message;
          return !polled || *polled != nullptr;  // it may have been accepted before
        },
        seconds(5)))
        << polls << " polls before";
    EXPECT_TRUE(accepted || error.find("127.0.0.1:") != std::string::npos) << polls << " polls: " << error;
  }
}

// As many as there are ranks, at one listener that comes to accept late.
TEST_F(MltLimits, ThreeHundredPeersAtOnceAllGetIn) {
  constexpr std::size_t kPeers = 300;
  const auto transport = create({});
  const auto listener = std::move(transport->listen(0, {}).value());
  std::vector<std::unique_ptr<PendingConnect>> pending;
  for (std::size_t i = 0; i < kPeers; ++i) {
    pending.push_back(std::move(transport->connect(0, listener->handle(), {}).value()));
  }
  std::vector<std::unique_ptr<SendChannel>> sends(kPeers);
  const auto poll_all = [&] {
    for (std::size_t i = 0; i < kPeers; ++i) {
      if (sends[i]) continue;
      auto polled = pending[i]->poll();
      EXPECT_TRUE(polled) << i << ": " << polled.error().message;
      if (polled) sends[i] = std::move(*polled);
    }
  };
  for (int i = 0; i < 5; ++i) poll_all();
  std::vector<std::unique_ptr<RecvChannel>> recvs;
  EXPECT_TRUE(poll_until([&] {
    if (auto recv = std::move(listener->poll_accept().value())) recvs.push_back(std::move(recv));
    poll_all();
    return HasFailure() || std::count(sends.begin(), sends.end(), nullptr) == 0;
  })) << std::count(sends.begin(), sends.end(), nullptr)
      << " did not get in";
  EXPECT_THAT(transport->summary(), HasSubstr(" 0 strangers dropped"));
}

TEST_F(MltLimits, AThousandConnectionsLeaveNoDescriptorAndNoThread) {
  constexpr int kAtOnce = tests::kSanitized ? 20 : 100;
  constexpr int kRounds = tests::kSanitized ? 3 : 10;
  std::thread([] {}).join();  // with the first one, ThreadSanitizer starts one of its own
  for (const char* engine : {"auto", "inline"}) {
    const std::size_t empty_descriptors = open_descriptors();
    const std::size_t empty_threads = running_threads();
    {
      const auto transport = create({.engine = engine});
      { Connection first = connect(*transport, *transport); }
      const std::size_t descriptors = open_descriptors();
      const std::size_t threads = running_threads();
      for (int round = 0; round < kRounds; ++round) {
        std::vector<Connection> connections;
        for (int i = 0; i < kAtOnce; ++i) connections.push_back(connect(*transport, *transport));
        for (int i = 0; i < kAtOnce; i += 10) transfer(connections[static_cast<std::size_t>(i)], 1000);
        EXPECT_EQ(running_threads(), threads) << "connections have no threads";
        if (round % 2 == 1) std::reverse(connections.begin(), connections.end());
      }
      EXPECT_EQ(open_descriptors(), descriptors) << engine;
      EXPECT_EQ(running_threads(), threads) << engine;
    }
    EXPECT_EQ(open_descriptors(), empty_descriptors) << engine << ", after finalize";
    // A thread that was joined leaves /proc a moment later.
    EXPECT_TRUE(poll_until([&] { return running_threads() <= empty_threads; })) << engine << ", after finalize";
  }
}

TEST_F(MltLimits, TransportsComeAndGoBesideOthersThatStillSend) {
  const auto here = create({});
  Connection steady = connect(*here, *here);
  const std::size_t descriptors = open_descriptors();
  const std::size_t threads = running_threads();
  for (int round = 0; round < 20 && !HasFailure(); ++round) {
    auto there = create({.engine = round % 2 == 0 ? "auto" : "thread"});
    Connection connection = connect(*here, *there);
    SendBuffer from(*connection.send, 4 << 20, 1);
    RecvBuffer to(*connection.recv, 4 << 20);
    Request* recv = must_recv(*connection.recv, {{to.mr.get(), 0, 4 << 20, 0}});
    Request* send = must_send(*connection.send, *from.mr, 0, 4 << 20);
    for (int i = 0; i < round; ++i) static_cast<void>(send->test() && recv->test());
    to.mr.reset();
    connection.recv.reset();
    there.reset();  // finalized while `here` still sends to it
    if (round % 3 == 0) {
      // The send is an error, or done if all of it had arrived: nothing else, and soon.
      EXPECT_TRUE(poll_until([&] { return send->test().value_or(Progress{true, {}, {}}).done; }, seconds(3)));
    }
    connection.send.reset();
    transfer(steady, 100000);
  }
  EXPECT_EQ(open_descriptors(), descriptors);
  EXPECT_TRUE(poll_until([&] { return running_threads() == threads; }));
}

TEST_F(MltLimits, InitTwiceInOneProcessGivesTwoTransportsThatReachEachOther) {
  const auto first = create({});
  auto second = create({.engine = "thread"});
  {
    Connection there = connect(*first, *second);
    Connection back = connect(*second, *first);
    Connection own = connect(*second, *second);
    for (Connection* connection : {&there, &back, &own}) transfer(*connection, 300000);
  }
  second.reset();
  second = create({});
  Connection again = connect(*second, *first);
  transfer(again, 300000);
}

// A peer that knows the token may still be wrong: a connection number that is taken is refused, and the first one
// stays.
TEST_F(MltLimits, AConnectionNumberThatIsTakenIsRefusedAndNothingBreaks) {
  const auto transport = create({});
  const auto listener = std::move(transport->listen(0, {}).value());
  const net::Socket first = greet(listener->handle(), 77);
  std::unique_ptr<RecvChannel> recv;
  ASSERT_TRUE(poll_until([&] { return (recv = std::move(listener->poll_accept().value())) != nullptr; }));
  const net::Socket second = greet(listener->handle(), 77);
  std::string error;
  EXPECT_TRUE(poll_until([&] {
    const auto polled = listener->poll_accept();
    if (!polled) error = polled.error().message;
    return !polled || *polled != nullptr;
  }));
  EXPECT_THAT(error, HasSubstr("in use"));
  RecvBuffer to(*recv, 10);
  Request* request = must_recv(*recv, {{to.mr.get(), 0, 10, 0}});
  EXPECT_FALSE(request->test().value().done);
  Connection other = connect(*transport, *transport);
  transfer(other, 100000);
}

// A NIC that goes away: every request and every new connection is an error that names the device.
class LostIo final : public io::ForwardingIo {
 public:
  LostIo(std::unique_ptr<io::PacketIo> inner, const std::atomic<bool>& lost)
      : ForwardingIo(std::move(inner)), lost_(lost) {}
  Result<std::size_t> receive(std::span<io::RxPacket> packets) override {
    if (lost_) return fail(ErrorCode::kSystem, "the cable caught fire");
    return ForwardingIo::receive(packets);
  }

 private:
  const std::atomic<bool>& lost_;
};

TEST_F(MltLimits, ADeviceThatIsLostIsAnErrorOfAllItsConnectionsAndOfNewOnes) {
  for (const char* engine : {"auto", "inline", "thread"}) {
    std::atomic<bool> lost{false};
    const auto transport = create({.engine = engine, .wrap = [&](std::unique_ptr<io::PacketIo> inner) {
                                     return std::make_unique<LostIo>(std::move(inner), lost);
                                   }});
    Connection connection = connect(*transport, *transport);
    RecvBuffer to(*connection.recv, 10);
    Request* request = must_recv(*connection.recv, {{to.mr.get(), 0, 10, 0}});
    const auto listener = std::move(transport->listen(0, {}).value());
    const auto pending = std::move(transport->connect(0, listener->handle(), {}).value());
    ASSERT_EQ(pending->poll().value(), nullptr);
    lost = true;
    EXPECT_THAT(await_error(*request, seconds(3)).message, ::testing::AllOf(HasSubstr("lo"), HasSubstr("fire")));
    std::string at_listener;
    EXPECT_TRUE(poll_until(
        [&] {
          static_cast<void>(pending->poll());
          auto accepted = listener->poll_accept();
          if (!accepted) at_listener = accepted.error().message;
          return !accepted || *accepted != nullptr;
        },
        seconds(3)));
    EXPECT_THAT(at_listener, HasSubstr("fire")) << engine;
  }
}

}  // namespace
}  // namespace clustar::transport::conformance
