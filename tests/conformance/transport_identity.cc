// What the ends of a channel learn of each other's messages and settings. The rules are those of
// transport/api/transport.h.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tests/conformance/transport_under_test.h"

namespace clustar::transport::conformance {
namespace {

class TransportIdentity : public ::testing::TestWithParam<TransportUnderTest> {
 protected:
  void SetUp() override {
    auto created = GetParam().create(Log());
    if (!created) GTEST_SKIP() << GetParam().name << " cannot run here: " << created.error().message;
    transport_ = std::move(*created);
    set_memory_under_test(GetParam().memory);
  }

  std::unique_ptr<Transport> transport_;
};

MessageIdentity identity_of(std::uint64_t number) {
  MessageIdentity identity;
  identity.known = true;
  identity.local_number = number % 2 == 1;
  identity.communicator = 0xfedcba9876543210;
  identity.number = MessageIdentity::kNumbers - 1 - number;
  identity.sender = static_cast<std::uint16_t>(MessageIdentity::kNoRank - number);
  identity.total_bytes = 1ull << 40;
  identity.transfer = static_cast<std::uint32_t>(number);
  identity.channel = static_cast<std::uint16_t>(200 + number);
  identity.function = static_cast<std::uint8_t>(number);
  identity.datatype = 7;
  if (number != 2) identity.algorithm = 1;
  identity.protocol = 2;
  return identity;
}

// Before their receive and after it, in one packet and in many, and between messages of which nothing is known.
TEST_P(TransportIdentity, TheReceiverLearnsWhatItsMessageIs) {
  ChannelOptions options;
  options.reads_identity = true;
  Connection connection = connect(*transport_, *transport_, options);
  constexpr std::size_t kSizes[] = {0, 8, 4096, 70000, 3 << 20};
  constexpr std::size_t kMost = 3 << 20;
  SendBuffer from(*connection.send, kMost, 1);
  RecvBuffer to(*connection.recv, std::size(kSizes) * kMost);
  for (const bool early : {true, false}) {
    std::vector<Request*> sends;
    std::vector<RecvPart> parts;
    for (std::size_t i = 0; i < std::size(kSizes); ++i) {
      parts.push_back({to.mr.get(), i * kMost, kMost, static_cast<int>(i)});
    }
    Request* received = early ? nullptr : must_recv(*connection.recv, parts);
    for (std::size_t i = 0; i < std::size(kSizes); ++i) {
      const FlowTag flow{.identity = i == 3 ? MessageIdentity{} : identity_of(i)};
      sends.push_back(must_send(*connection.send, *from.mr, 0, kSizes[i], static_cast<int>(i), flow));
    }
    if (early) received = must_recv(*connection.recv, parts);
    bool done = false;
    ASSERT_TRUE(poll_until([&] {
      std::erase_if(sends, [](Request* send) { return send->test().value().done; });
      if (done) return sends.empty();
      const Progress progress = received->test().value();
      if (!progress.done) return false;
      done = true;
      EXPECT_EQ(progress.messages.size(), std::size(kSizes));
      for (std::size_t i = 0; i < progress.messages.size(); ++i) {
        EXPECT_EQ(progress.messages[i].identity, i == 3 ? MessageIdentity{} : identity_of(i)) << i << ", " << early;
        EXPECT_EQ(progress.messages[i].loss.tolerance_ppm, 0u);
      }
      return sends.empty();
    }));
  }
}

// A receiver that does not want to know pays nothing for it, where it would cost something.
TEST_P(TransportIdentity, WhatNobodyReadsDoesNotTravel) {
  Connection connection = connect(*transport_, *transport_);
  SendBuffer from(*connection.send, 1 << 20, 1);
  RecvBuffer to(*connection.recv, 1 << 20);
  for (const std::size_t size : {std::size_t{8}, std::size_t{1} << 20}) {
    Request* received = must_recv(*connection.recv, {{{to.mr.get(), 0, size, 7}}});
    Request* sent = must_send(*connection.send, *from.mr, 0, size, 7, FlowTag{.identity = identity_of(1)});
    bool sending = true, receiving = true;
    ASSERT_TRUE(poll_until([&] {
      if (sending) sending = !sent->test().value().done;
      if (!receiving) return !sending;
      const Progress progress = received->test().value();
      if (!progress.done) return false;
      receiving = false;
      EXPECT_EQ(progress.sizes[0], size);
      const std::string_view name = transport_->name();
      if ((name == "tcp" || name == "verbs") && !progress.messages.empty()) {
        EXPECT_EQ(progress.messages[0].identity, MessageIdentity{});
      }
      return !sending;
    }));
  }
}

TEST_P(TransportIdentity, CountersAreThoseOfTheMessages) {
  ChannelOptions options;
  options.rank = 3;
  options.traffic_class = 160;
  const auto traffic_of = [&] {
    ChannelTraffic all;
    for (const DeviceCounters& device : transport_->counters().devices) {
      for (const ClassTraffic& one : device.classes) {
        if (one.traffic_class == 160) all += one.traffic;
      }
    }
    return all;
  };
  const ChannelTraffic before = traffic_of();
  std::uint64_t bytes = 0;
  constexpr int kMessages = 20;
  {
    Connection connection = connect(*transport_, *transport_, options);
    EXPECT_EQ(connection.send->peer().rank, 3) << "of the listener";
    EXPECT_EQ(connection.recv->peer().rank, 3) << "of the connecting end";
    EXPECT_FALSE(connection.recv->peer().host.empty());
    SendBuffer from(*connection.send, 1 << 20, 1);
    RecvBuffer to(*connection.recv, 1 << 20);
    for (int i = 0; i < kMessages; ++i) {
      const std::size_t size = std::size_t{1} << i;
      bytes += size;
      Request* received = must_recv(*connection.recv, {{{to.mr.get(), 0, size, 7}}});
      Request* sent = must_send(*connection.send, *from.mr, 0, size, 7, {});
      bool sending = true, receiving = true;
      ASSERT_TRUE(poll_until([&] {
        if (sending) sending = !sent->test().value().done;
        if (receiving) receiving = !received->test().value().done;
        return !sending && !receiving;
      }));
    }
    const ChannelTraffic open = traffic_of();
    EXPECT_EQ(open.sent.messages - before.sent.messages, kMessages) << "while the channels are open";
    bool named = false;
    std::string peers;
    for (const DeviceCounters& device : transport_->counters().devices) {
      for (const PeerTraffic& peer : device.peers) {
        named = named || (peer.rank == 3 && peer.channels >= 1);
        peers += fmt::format("{}: {} rank {}, {} channels; ", device.device, peer.host, peer.rank, peer.channels);
      }
    }
    EXPECT_TRUE(named) << peers;
  }
  const ChannelTraffic after = traffic_of();
  EXPECT_EQ(after.sent.messages - before.sent.messages, kMessages);
  EXPECT_EQ(after.sent.bytes - before.sent.bytes, bytes);
  EXPECT_EQ(after.received.messages - before.received.messages, kMessages);
  EXPECT_EQ(after.received.bytes - before.received.bytes, bytes);
  EXPECT_EQ(after.missing_bytes, before.missing_bytes);
  EXPECT_THAT(transport_->summary(), ::testing::HasSubstr("messages / "));
}

TEST_P(TransportIdentity, ALongSendWithoutAReceiveCountsAsOneThatWaits) {
  constexpr std::size_t kLong = 4 << 20;
  const auto waits = [&] {
    std::uint64_t sum = 0;
    for (const DeviceCounters& device : transport_->counters().devices) sum += device.total.waits;
    return sum;
  };
  Connection connection = connect(*transport_, *transport_);
  SendBuffer from(*connection.send, kLong, 1);
  RecvBuffer to(*connection.recv, kLong);
  const std::uint64_t before = waits();
  Request* const sent = must_send(*connection.send, *from.mr, 0, kLong);
  EXPECT_TRUE(poll_until([&] {
    EXPECT_FALSE(sent->test().value().done);
    return waits() > before;
  }));
  finish({sent, must_recv(*connection.recv, {{to.mr.get(), 0, kLong, 0}})});
  EXPECT_EQ(waits(), before + 1);
}

TEST_P(TransportIdentity, BothEndsNeedTheSameConfiguration) {
  ChannelOptions here;
  here.rank = 3;
  const std::vector<std::string> names{"CLUSTAR_ONE", "CLUSTAR_TWO", "CLUSTAR_THREE"};
  here.config_names = names;
  for (const std::string& name : names) here.config.add(name, "1");
  connect(*transport_, *transport_, here);
  ChannelOptions there = here;
  there.config = {};
  for (const std::string& name : names) there.config.add(name, name == names[2] ? "4" : "1");
  for (const int rank : {7, -1}) {
    there.rank = rank;
    const auto listener = std::move(transport_->listen(0, there).value());
    const auto refused = transport_->connect(0, listener->handle(), here);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
    const std::string& message = refused.error().message;
    EXPECT_NE(message.find(names[2]), std::string::npos) << message;
    EXPECT_NE(message.find("than on rank 3; set it alike on all ranks"), std::string::npos) << message;
    EXPECT_EQ(message.find("is another on rank 7") != std::string::npos, rank == 7) << message;
  }
}

INSTANTIATE_TEST_SUITE_P(Implementations, TransportIdentity, ::testing::ValuesIn(transports_under_test()),
                         [](const auto& suite) { return suite.param.name; });
INSTANTIATE_TEST_SUITE_P(MltElsewhere, TransportIdentity, ::testing::ValuesIn(mlt_elsewhere_under_test()),
                         [](const auto& suite) { return suite.param.name; });

}  // namespace
}  // namespace clustar::transport::conformance
