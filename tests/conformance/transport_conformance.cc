// What every implementation of transport::Transport must do. The rules are those of transport/api/transport.h.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <map>
#include <random>
#include <thread>

#include "tests/conformance/transport_under_test.h"
#include "tests/own_process.h"

namespace clustar::transport::conformance {
namespace {

using tests::open_descriptors;
using tests::running_threads;
using tests::threads_left;

class TransportConformance : public ::testing::TestWithParam<TransportUnderTest> {
 protected:
  void SetUp() override {
    auto created = GetParam().create(Log());
    if (!created) GTEST_SKIP() << GetParam().name << " cannot run here: " << created.error().message;
    transport_ = std::move(*created);
    set_memory_under_test(GetParam().memory);
  }

  std::unique_ptr<Transport> transport_;
};

TEST_P(TransportConformance, DescribesItsDevices) {
  ASSERT_FALSE(transport_->devices().empty());
  for (const DeviceProperties& device : transport_->devices()) {
    EXPECT_FALSE(device.name.empty());
    EXPECT_GT(device.speed_mbps, 0);
    EXPECT_GT(device.max_channels, 0);
    EXPECT_GE(device.max_recv_parts, 1);
    EXPECT_LE(device.max_recv_parts, static_cast<int>(kMaxRecvParts));
    EXPECT_NE(device.memory_kinds & (1u << static_cast<unsigned>(gdr::MemoryKind::kHost)), 0u);
  }
  EXPECT_FALSE(transport_->listen(-1, {}));
  EXPECT_FALSE(transport_->listen(static_cast<int>(transport_->devices().size()), {}));
}

TEST_P(TransportConformance, MessagesOfEverySizeArriveWhole) {
  Connection connection = connect(*transport_, *transport_);
  for (const std::size_t size :
       {0ul, 1ul, 8ul, 4095ul, 4096ul, 65536ul, 65537ul, (1ul << 20) - 1, 1ul << 20, (4ul << 20) + 1}) {
    SendBuffer from(*connection.send, size, static_cast<unsigned>(size));
    RecvBuffer to(*connection.recv, size);
    const auto sizes = finish(
        {must_recv(*connection.recv, {{to.mr.get(), 0, size, 0}}), must_send(*connection.send, *from.mr, 0, size)});
    EXPECT_EQ(sizes[0], std::vector<std::size_t>{size});
    EXPECT_EQ(sizes[1], std::vector<std::size_t>{size});
    EXPECT_EQ(from.bytes, to.bytes) << size;
  }
}

TEST_P(TransportConformance, SendsMayComeLongBeforeTheirReceives) {
  Connection connection = connect(*transport_, *transport_);
  constexpr std::size_t kSize = 200000;
  SendBuffer from(*connection.send, 8 * kSize, 1);
  RecvBuffer to(*connection.recv, 8 * kSize);
  std::vector<Request*> requests;
  for (std::size_t i = 0; i < 8; ++i) {
    requests.push_back(must_send(*connection.send, *from.mr, i * kSize, i % 2 == 0 ? kSize : 100));
  }
  for (std::size_t i = 0; i < 8; ++i) {
    requests.push_back(must_recv(*connection.recv, {{to.mr.get(), i * kSize, kSize, 0}}));
  }
  const auto sizes = finish(requests);
  for (std::size_t i = 0; i < 8; ++i) {
    const std::size_t sent = i % 2 == 0 ? kSize : 100;
    EXPECT_EQ(sizes[8 + i][0], sent);
    EXPECT_TRUE(std::equal(to.bytes.begin() + static_cast<long>(i * kSize),
                           to.bytes.begin() + static_cast<long>(i * kSize + sent),
                           from.bytes.begin() + static_cast<long>(i * kSize)));
  }
}

// Receives come one at a time, each only after the one before is done, and the messages are sent long before.
TEST_P(TransportConformance, ReceivesMayComeOneByOneForMessagesOfAnyMix) {
  Connection connection = connect(*transport_, *transport_);
  constexpr std::size_t kSizes[] = {200000, 10, 65536, 0, 1000000, 1, 70000, 64};
  SendBuffer from(*connection.send, 1000000, 2);
  RecvBuffer to(*connection.recv, 1000000);
  for (const int tags : {1, 3}) {
    std::vector<Request*> sends;
    for (std::size_t i = 0; i < std::size(kSizes); ++i) {
      sends.push_back(must_send(*connection.send, *from.mr, 0, kSizes[i], static_cast<int>(i) % tags));
    }
    std::vector<bool> sent(sends.size(), false);
    for (std::size_t i = 0; i < std::size(kSizes); ++i) {
      Request* recv = must_recv(*connection.recv, {{to.mr.get(), 0, 1000000, static_cast<int>(i) % tags}});
      ASSERT_TRUE(poll_until([&] {
        for (std::size_t s = 0; s < sends.size(); ++s) {
          if (!sent[s]) sent[s] = sends[s]->test().value().done;
        }
        const auto progress = recv->test().value();
        EXPECT_TRUE(!progress.done || progress.sizes[0] == kSizes[i]);
        return progress.done;
      })) << "message "
          << i << " of " << kSizes[i] << " bytes, " << tags << " tags";
      ASSERT_TRUE(std::equal(to.bytes.begin(), to.bytes.begin() + static_cast<long>(kSizes[i]), from.bytes.begin()));
    }
    ASSERT_TRUE(poll_until([&] {
      for (std::size_t s = 0; s < sends.size(); ++s) {
        if (!sent[s]) sent[s] = sends[s]->test().value().done;
      }
      return std::find(sent.begin(), sent.end(), false) == sent.end();
    }));
  }
}

TEST_P(TransportConformance, AShorterReceiveCutsTheMessageAndTouchesNothingElse) {
  Connection connection = connect(*transport_, *transport_);
  for (const std::size_t posted : {0ul, 10ul, 5000ul, 150000ul}) {
    for (const bool send_first : {false, true}) {
      SendBuffer from(*connection.send, 200000, 3);
      RecvBuffer to(*connection.recv, 200000);
      Request* send = nullptr;
      if (send_first) send = must_send(*connection.send, *from.mr, 0, 200000);
      Request* recv = must_recv(*connection.recv, {{to.mr.get(), 0, posted, 0}});
      if (!send_first) send = must_send(*connection.send, *from.mr, 0, 200000);
      const auto sizes = finish({recv, send});
      EXPECT_EQ(sizes[0][0], posted);
      EXPECT_TRUE(std::equal(to.bytes.begin(), to.bytes.begin() + static_cast<long>(posted), from.bytes.begin()));
      EXPECT_TRUE(std::all_of(to.bytes.begin() + static_cast<long>(posted), to.bytes.end(),
                              [](std::byte b) { return b == std::byte{0xee}; }));
    }
  }
}

TEST_P(TransportConformance, ALongerReceiveReportsTheTrueSize) {
  Connection connection = connect(*transport_, *transport_);
  SendBuffer from(*connection.send, 777, 4);
  RecvBuffer to(*connection.recv, 1 << 20);
  const auto sizes = finish(
      {must_recv(*connection.recv, {{to.mr.get(), 0, 1 << 20, 0}}), must_send(*connection.send, *from.mr, 0, 777)});
  EXPECT_EQ(sizes[0][0], 777u);
  EXPECT_EQ(to.bytes[777], std::byte{0xee});
}

TEST_P(TransportConformance, GroupedReceivesMatchByTagInAnyOrder) {
  const auto parts_allowed = static_cast<std::size_t>(transport_->devices().front().max_recv_parts);
  if (parts_allowed < 2) GTEST_SKIP() << "this transport offers one receive per request";
  Connection connection = connect(*transport_, *transport_);
  constexpr std::size_t kSize = 70000;
  SendBuffer from(*connection.send, parts_allowed * kSize, 5);
  RecvBuffer to(*connection.recv, parts_allowed * kSize);
  std::mt19937 random(6);
  for (int round = 0; round < 50; ++round) {
    std::vector<int> tags(parts_allowed);
    for (std::size_t i = 0; i < tags.size(); ++i) tags[i] = static_cast<int>(i) - 3;
    std::shuffle(tags.begin(), tags.end(), random);
    std::vector<RecvPart> parts;
    for (std::size_t i = 0; i < parts_allowed; ++i) parts.push_back({to.mr.get(), i * kSize, kSize, tags[i]});
    std::vector<Request*> requests;
    const bool recv_first = round % 2 == 0;
    if (recv_first) requests.push_back(must_recv(*connection.recv, parts));
    std::shuffle(tags.begin(), tags.end(), random);
    std::map<int, std::size_t> length;
    for (const int tag : tags) {
      length[tag] = random() % 3 == 0 ? 0 : random() % kSize;
      requests.push_back(
          must_send(*connection.send, *from.mr, static_cast<std::size_t>(tag + 3) * kSize, length[tag], tag));
    }
    if (!recv_first) requests.insert(requests.begin(), must_recv(*connection.recv, parts));
    const auto sizes = finish(requests);
    for (std::size_t i = 0; i < parts_allowed; ++i) {
      ASSERT_EQ(sizes[0][i], length[parts[i].tag]);
      ASSERT_TRUE(
          std::equal(to.bytes.begin() + static_cast<long>(i * kSize),
                     to.bytes.begin() + static_cast<long>(i * kSize + sizes[0][i]),
                     from.bytes.begin() + static_cast<long>(static_cast<std::size_t>(parts[i].tag + 3) * kSize)));
    }
  }
}

TEST_P(TransportConformance, ThirtyTwoOutstandingRequestsAreTakenAndMoreAreRefusedGently) {
  Connection connection = connect(*transport_, *transport_);
  SendBuffer from(*connection.send, 64, 7);
  RecvBuffer to(*connection.recv, 64 * 32);
  std::vector<Request*> receives;
  for (std::size_t i = 0; i < 32; ++i) {
    const auto posted = connection.recv->recv(std::vector<RecvPart>{{to.mr.get(), i * 64, 64, 0}});
    ASSERT_TRUE(posted && *posted != nullptr) << "NCCL posts up to 32";
    receives.push_back(*posted);
  }
  const auto more = connection.recv->recv(std::vector<RecvPart>{{to.mr.get(), 0, 64, 0}});
  EXPECT_TRUE(more) << "being full is not an error";
  std::vector<Request*> all = receives;
  if (more && *more != nullptr) all.push_back(*more);
  const std::size_t count = all.size();
  for (std::size_t i = 0; i < count; ++i) all.push_back(must_send(*connection.send, *from.mr, 0, 64));
  finish(all);
}

TEST_P(TransportConformance, RejectsTooManyParts) {
  Connection connection = connect(*transport_, *transport_);
  RecvBuffer to(*connection.recv, 64);
  const std::vector<RecvPart> parts(kMaxRecvParts + 1, RecvPart{to.mr.get(), 0, 1, 0});
  EXPECT_FALSE(connection.recv->recv(parts));
  EXPECT_FALSE(connection.recv->recv({}));
}

TEST_P(TransportConformance, RejectsMemoryOfOtherKinds) {
  Connection connection = connect(*transport_, *transport_);
  for (const gdr::MemoryKind kind : {gdr::MemoryKind::kCuda, gdr::MemoryKind::kDmaBuf}) {
    if ((transport_->devices().front().memory_kinds & gdr::bit(kind)) != 0) continue;
    gdr::MemoryRef other;
    other.kind = kind;
    const auto registered = connection.send->reg_mr(other);
    ASSERT_FALSE(registered);
    EXPECT_NE(registered.error().message.find(gdr::to_string(kind)), std::string::npos);
  }
}

// Long random traffic in both directions at once, by two threads as two ranks have them.
TEST_P(TransportConformance, RandomTrafficStaysInOrderPerTag) {
  auto other = GetParam().create(Log());
  ASSERT_TRUE(other);
  Connection there = connect(*transport_, **other);
  Connection back = connect(**other, *transport_);
  std::atomic<int> busy = 2;
  const auto traffic = [&busy](SendChannel& send, RecvChannel& recv, unsigned send_seed, unsigned recv_seed) {
    constexpr std::size_t kMessages = 400;
    constexpr std::size_t kMax = 300000;
    std::mt19937 send_random(send_seed);
    std::mt19937 recv_random(recv_seed);
    SendBuffer from(send, kMax, 99);
    std::vector<std::unique_ptr<RecvBuffer>> buffers;
    for (int i = 0; i < 8; ++i) buffers.push_back(std::make_unique<RecvBuffer>(recv, kMax));
    struct Open {
      Request* request;
      std::size_t size;
      std::size_t buffer;
    };
    std::deque<Open> sends;
    std::deque<Open> receives;
    std::size_t sent = 0, posted = 0, received = 0;
    const auto size_of = [](std::mt19937& random) {
      static constexpr std::size_t kScale[] = {1, 100, 5000, kMax};
      return random() % kScale[random() % 4];
    };
    const bool finished = poll_until(
        [&] {
          if (sent < kMessages && sends.size() < 16) {
            std::mt19937 ahead = send_random;
            const std::size_t size = size_of(ahead);
            const auto request = send.send(*from.mr, 0, size, 3, {});
            EXPECT_TRUE(request);
            if (!request) return true;
            if (*request != nullptr) {
              send_random = ahead;
              sends.push_back({*request, size, 0});
              ++sent;
            }
          }
          if (posted < kMessages && receives.size() < 8) {
            const std::size_t size = size_of(recv_random);
            auto* request = must_recv(recv, {{buffers[posted % 8]->mr.get(), 0, kMax, 3}});
            receives.push_back({request, size, posted % 8});
            ++posted;
          }
          if (!sends.empty() && sends.front().request->test()->done) sends.pop_front();
          if (!receives.empty()) {
            const auto progress = receives.front().request->test();
            EXPECT_TRUE(progress);
            if (!progress) return true;
            if (progress->done) {
              EXPECT_EQ(progress->sizes[0], receives.front().size) << "message " << received;
              const auto& bytes = buffers[receives.front().buffer]->bytes;
              EXPECT_TRUE(std::equal(bytes.begin(), bytes.begin() + static_cast<long>(receives.front().size),
                                     from.bytes.begin()));
              receives.pop_front();
              ++received;
            }
          }
          return received == kMessages && sends.empty() && sent == kMessages;
        },
        std::chrono::seconds(60));
    EXPECT_TRUE(finished) << sent << " sent, " << received << " received";
    --busy;
    if (!GetParam().only_calls_move_bytes) return;
    Request* nothing = must_recv(recv, {{buffers[0]->mr.get(), 0, kMax, 3}});
    EXPECT_TRUE(poll_until([&] { return (void)nothing->test(), busy == 0; }, std::chrono::seconds(60)));
  };
  std::thread peer([&] { traffic(*back.send, *there.recv, 1, 2); });
  traffic(*there.send, *back.recv, 2, 1);
  peer.join();
}

TEST_P(TransportConformance, ManyChannelsFromManyThreadsShareOneDevice) {
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      Connection connection = connect(*transport_, *transport_);
      SendBuffer from(*connection.send, 300000, t);
      RecvBuffer to(*connection.recv, 300000);
      for (int round = 0; round < 40; ++round) {
        const std::size_t size = round % 2 == 0 ? 300000 : 64;
        finish(
            {must_recv(*connection.recv, {{to.mr.get(), 0, size, 0}}), must_send(*connection.send, *from.mr, 0, size)});
        ASSERT_TRUE(std::equal(from.bytes.begin(), from.bytes.begin() + static_cast<long>(size), to.bytes.begin()));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_P(TransportConformance, RegistrationRunsBesideTransfers) {
  Connection connection = connect(*transport_, *transport_);
  std::atomic<bool> stop{false};
  std::thread service([&] {
    std::vector<std::byte> memory(4096);
    while (!stop) {
      EXPECT_TRUE(connection.send->reg_mr(memory_under_test(memory)));
      EXPECT_TRUE(connection.recv->reg_mr(memory_under_test(memory)));
    }
  });
  SendBuffer from(*connection.send, 4096, 1);
  RecvBuffer to(*connection.recv, 4096);
  for (int i = 0; i < 500; ++i) {
    finish({must_recv(*connection.recv, {{to.mr.get(), 0, 4096, 0}}), must_send(*connection.send, *from.mr, 0, 4096)});
  }
  stop = true;
  service.join();
}

TEST_P(TransportConformance, WhatWasDoneAtTheSenderArrivesThoughItClosed) {
  for (const std::size_t size : {100ul, 60000ul}) {
    Connection fresh = connect(*transport_, *transport_);
    SendBuffer from(*fresh.send, size, 8);
    RecvBuffer to(*fresh.recv, size);
    // Receives are posted, so that the message may leave whatever its size; one more is posted than will come.
    Request* recv = must_recv(*fresh.recv, {{to.mr.get(), 0, size, 0}});
    finish({must_send(*fresh.send, *from.mr, 0, size)});
    fresh.send.reset();
    finish({recv});
    EXPECT_EQ(from.bytes, to.bytes);
  }
}

TEST_P(TransportConformance, AClosedPeerIsAnErrorOfTheRequestsThatWaitForIt) {
  {
    Connection connection = connect(*transport_, *transport_);
    RecvBuffer to(*connection.recv, 64);
    Request* recv = must_recv(*connection.recv, {{to.mr.get(), 0, 64, 0}});
    connection.send.reset();
    EXPECT_EQ(await_error(*recv).code, ErrorCode::kRemote);
  }
  {
    Connection connection = connect(*transport_, *transport_);
    SendBuffer from(*connection.send, 8 << 20, 1);
    Request* send = must_send(*connection.send, *from.mr, 0, 8 << 20);
    connection.recv.reset();
    const Error error = await_error(*send);
    EXPECT_EQ(error.code, ErrorCode::kRemote) << error.message;
    const auto next = connection.send->send(*from.mr, 0, 10, 0, {});
    EXPECT_FALSE(next) << "the channel stays broken";
  }
}

// Their registrations outlive them.
TEST_P(TransportConformance, ChannelsCloseWithRequestsInFlight) {
  for (int order = 0; order < 2; ++order) {
    Connection connection = connect(*transport_, *transport_);
    SendBuffer from(*connection.send, 1 << 20, 1);
    RecvBuffer to(*connection.recv, 1 << 20);
    for (int i = 0; i < 4; ++i) {
      must_recv(*connection.recv, {{to.mr.get(), 0, 1 << 20, 0}});
      must_send(*connection.send, *from.mr, 0, 1 << 20);
    }
    if (order == 0) {
      connection.send.reset();
    } else {
      connection.recv.reset();
    }
  }
  // The device still works for others.
  Connection connection = connect(*transport_, *transport_);
  SendBuffer from(*connection.send, 100, 1);
  RecvBuffer to(*connection.recv, 100);
  finish({must_recv(*connection.recv, {{to.mr.get(), 0, 100, 0}}), must_send(*connection.send, *from.mr, 0, 100)});
  EXPECT_EQ(from.bytes, to.bytes);
}

// NCCL deregisters before it closes; what is still queued must not be read any more.
TEST_P(TransportConformance, DeregisteringMemoryEndsTheSendsThatUseIt) {
  Connection connection = connect(*transport_, *transport_);
  auto from = std::make_unique<SendBuffer>(*connection.send, 8 << 20, 1);
  Request* send = must_send(*connection.send, *from->mr, 0, 8 << 20);
  from->mr.reset();
  const Error error = await_error(*send);
  EXPECT_EQ(error.code, ErrorCode::kInvalidUsage) << error.message;
}

TEST_P(TransportConformance, AListenerServesSeveralPeersAndMayCloseAfterwards) {
  auto listener = transport_->listen(0, {});
  ASSERT_TRUE(listener);
  std::vector<std::unique_ptr<PendingConnect>> pending;
  std::vector<std::unique_ptr<SendChannel>> sends(3);
  std::vector<std::unique_ptr<RecvChannel>> recvs;
  for (int i = 0; i < 3; ++i) pending.push_back(std::move(*transport_->connect(0, (*listener)->handle(), {})));
  ASSERT_TRUE(poll_until([&] {
    for (std::size_t i = 0; i < 3; ++i) {
      if (!sends[i]) sends[i] = std::move(*pending[i]->poll());
    }
    if (auto recv = std::move(*(*listener)->poll_accept())) recvs.push_back(std::move(recv));
    return recvs.size() == 3 && sends[0] && sends[1] && sends[2];
  }));
  listener->reset();
  std::vector<std::unique_ptr<SendBuffer>> from;
  std::vector<std::unique_ptr<RecvBuffer>> to;
  std::vector<Request*> requests;
  for (auto& recv : recvs) {
    to.push_back(std::make_unique<RecvBuffer>(*recv, 10));
    requests.push_back(must_recv(*recv, {{to.back()->mr.get(), 0, 10, 0}}));
  }
  for (auto& send : sends) {
    from.push_back(std::make_unique<SendBuffer>(*send, 10, 1));
    requests.push_back(must_send(*send, *from.back()->mr, 0, 10));
  }
  finish(requests);
  for (const auto& buffer : to) EXPECT_EQ(buffer->bytes, from.front()->bytes);
}

TEST_P(TransportConformance, PendingConnectsAndListenersMayBeAbandoned) {
  auto listener = transport_->listen(0, {});
  ASSERT_TRUE(listener);
  for (int polls = 0; polls < 5; ++polls) {
    auto pending = transport_->connect(0, (*listener)->handle(), {});
    ASSERT_TRUE(pending);
    for (int i = 0; i < polls; ++i) {
      EXPECT_TRUE((*pending)->poll());
      EXPECT_TRUE((*listener)->poll_accept());
    }
  }
}

TEST_P(TransportConformance, AHandleOfAnotherKindIsAnError) {
  Handle garbage;
  std::mt19937 random(1);
  for (std::byte& byte : garbage) byte = static_cast<std::byte>(random());
  const auto refused = transport_->connect(0, garbage, {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_FALSE(transport_->connect(0, Handle{}, {}));
}

TEST_P(TransportConformance, AListenerThatIsGoneIsAnErrorWithinABound) {
  auto listener = transport_->listen(0, {});
  ASSERT_TRUE(listener);
  const Handle handle = (*listener)->handle();
  listener->reset();
  auto pending = transport_->connect(0, handle, {});
  ASSERT_TRUE(pending);
  bool failed = false;
  EXPECT_TRUE(poll_until([&] {
    failed = !(*pending)->poll();
    return failed;
  }));
  EXPECT_TRUE(failed);
}

TEST_P(TransportConformance, ManyConnectTransferCloseCyclesLeakNothing) {
  const auto cycle = [&] {
    Connection connection = connect(*transport_, *transport_);
    SendBuffer from(*connection.send, 1000, 1);
    RecvBuffer to(*connection.recv, 1000);
    finish({must_recv(*connection.recv, {{to.mr.get(), 0, 1000, 0}}), must_send(*connection.send, *from.mr, 0, 1000)});
  };
  cycle();
  const std::size_t descriptors = open_descriptors();
  const std::size_t threads = running_threads();
  for (int i = 0; i < GetParam().cycles; ++i) cycle();
  EXPECT_EQ(open_descriptors(), descriptors);
  EXPECT_LE(threads_left(threads), threads);
}

INSTANTIATE_TEST_SUITE_P(Implementations, TransportConformance, ::testing::ValuesIn(transports_under_test()),
                         [](const auto& suite) { return suite.param.name; });
INSTANTIATE_TEST_SUITE_P(MltElsewhere, TransportConformance, ::testing::ValuesIn(mlt_elsewhere_under_test()),
                         [](const auto& suite) { return suite.param.name; });

}  // namespace
}  // namespace clustar::transport::conformance
