// How often our own code copies payload, as the counters of transport/base/copies tell: they are the process's, so only
// differences count here.
#include "transport/base/copies.h"

#include <gmock/gmock.h>

#include <array>

#include "tests/conformance/mlt_bed.h"
#include "transport/net/settings.h"
#include "transport/tcp/tcp_transport.h"

namespace clustar::transport::conformance {
namespace {

using ::testing::HasSubstr;

constexpr std::size_t kMessage = 1 << 20;
constexpr std::size_t kMessages = 8;
constexpr std::size_t kPayload = kMessage * kMessages;

class Copies : public MltBed {
 protected:
  std::uint64_t since(Copy why) const { return copied_bytes(why) - before_[static_cast<std::size_t>(why)]; }
  std::uint64_t since() const { return copied_bytes() - total_; }
  static void transfer_all(Connection& connection, std::size_t size) {
    for (unsigned i = 0; i < kMessages; ++i) ASSERT_TRUE(transfer(connection, size, i + 1));
  }
  std::unique_ptr<Transport> create_tcp() {
    Config config;
    config.edit<NetworkSettings>()->interfaces = "=lo";
    return std::move(tcp::TcpTransport::create({config, clock_}).value());
  }

 private:
  static std::array<std::uint64_t, kCopyKinds> all() {
    std::array<std::uint64_t, kCopyKinds> bytes{};
    for (std::size_t i = 0; i < kCopyKinds; ++i) bytes[i] = copied_bytes(static_cast<Copy>(i));
    return bytes;
  }
  std::array<std::uint64_t, kCopyKinds> before_ = all();
  std::uint64_t total_ = copied_bytes();
};

TEST_F(Copies, TcpReadsLongMessagesStraightToTheirPlace) {
  const auto transport = create_tcp();
  Connection connection = connect(*transport, *transport);
  // The first one's header may be read together with payload behind it: nothing was known about it yet.
  transfer(connection, kMessage, 9);
  const std::uint64_t first = since();
  EXPECT_LE(first, 64u * 1024);
  transfer_all(connection, kMessage);
  EXPECT_EQ(since(), first) << describe_copies();
  EXPECT_THAT(transport->summary(), HasSubstr(describe_copies()));
}

TEST_F(Copies, TcpCopiesAMessageThatCameBeforeItsReceive) {
  const auto transport = create_tcp();
  Connection connection = connect(*transport, *transport);
  constexpr std::size_t kEarly = 32 * 1024;
  SendBuffer from(*connection.send, kEarly, 1);
  RecvBuffer to(*connection.recv, kEarly);
  finish({must_send(*connection.send, *from.mr, 0, kEarly, 5)});
  // Nothing is read before a receive is tested; this one stays open until the early message was read.
  Request* other = must_recv(*connection.recv, {{to.mr.get(), 0, 16, 6}});
  for (int i = 0; i < 1000; ++i) ASSERT_FALSE(other->test()->done);
  finish({must_recv(*connection.recv, {{to.mr.get(), 0, kEarly, 5}})});
  EXPECT_EQ(from.bytes, to.bytes);
  EXPECT_EQ(since(Copy::kEarly), kEarly);
}

TEST_F(Copies, MltOverUdpCopiesEachByteOnceWhereItIsReceived) {
  const auto transport = create({});
  Connection connection = connect(*transport, *transport);
  transfer_all(connection, kMessage);
  // Packets that come twice are not placed twice.
  EXPECT_EQ(since(Copy::kPlaced), kPayload);
  EXPECT_LE(since(Copy::kStaged), kPayload) << "what came before its receive waits in staging";
  EXPECT_EQ(since(Copy::kSendBuffer), 0u) << "a long message is sent from where it lies";
  EXPECT_THAT(transport->summary(), HasSubstr(describe_copies()));
}

TEST_F(Copies, MltBuffersAShortMessageAtItsSender) {
  const auto transport = create({});
  Connection connection = connect(*transport, *transport);
  constexpr std::size_t kShort = 1000;
  transfer_all(connection, kShort);
  EXPECT_EQ(since(Copy::kSendBuffer), kMessages * kShort);
  EXPECT_EQ(since(Copy::kPlaced), kMessages * kShort);
}

}  // namespace
}  // namespace clustar::transport::conformance
