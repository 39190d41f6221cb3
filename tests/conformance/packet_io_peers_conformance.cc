// What every implementation of io::PacketIo must do about peers, readiness and its link. The rules are those of
// transport/io/packet_io.h.
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <vector>

#include "tests/conformance/packet_io_under_test.h"

namespace clustar::transport::conformance {
namespace {

constexpr std::size_t kSize = 40;

class PacketIoPeers : public ::testing::TestWithParam<PacketIoUnderTest> {
 protected:
  void SetUp() override {
    auto created = GetParam().create();
    if (!created) GTEST_SKIP() << GetParam().name << " cannot run here: " << created.error().message;
    bed_ = std::move(*created);
  }
  void send(std::size_t from, std::size_t to, const PayloadBuffer& buffer, std::size_t count = 1) {
    io::TxPacket packet;
    packet.peer = bed_->peer(from, to);
    packet.header = header_of(8, 3);
    packet.payload = {buffer.mr.get(), 0, kSize};
    send_all(*bed_, from, std::vector(count, packet));
  }
  void expect_passage(std::size_t from, std::size_t to) {
    PayloadBuffer buffer(bed_->end(from), kSize, 4);
    send(from, to, buffer);
    const auto received = collect(*bed_, to, 1, std::chrono::seconds(1));
    ASSERT_EQ(received.size(), 1u) << from << " to " << to;
    EXPECT_EQ(received[0].payload, buffer.bytes);
    EXPECT_EQ(received[0].info.peer, bed_->peer(to, from));
  }
  Result<io::PeerId> add(std::size_t at, std::span<const std::byte> address) {
    const auto blob = io::AddressBlob::of(address);
    EXPECT_TRUE(blob);
    return bed_->end(at).add_peer(blob.value_or(io::AddressBlob()), bed_->control(1));
  }

  std::unique_ptr<PacketIoBed> bed_;
};

TEST_P(PacketIoPeers, TheAddressStaysAndThosePeersThatForgotEachOtherMeetAgain) {
  const io::AddressBlob before = bed_->end(0).local_address();
  EXPECT_LE(before.bytes().size(), io::AddressBlob::kMax);
  // Ends of two hosts may have drawn the same ports.
  if (bed_->control(0).address == bed_->control(1).address) {
    EXPECT_FALSE(bed_->end(0).local_address() == bed_->end(1).local_address());
  }
  expect_passage(0, 1);
  ASSERT_TRUE(bed_->end(0).remove_peer(bed_->peer(0, 1)));
  ASSERT_TRUE(bed_->end(1).remove_peer(bed_->peer(1, 0)));
  EXPECT_EQ(bed_->end(0).local_address(), before);
  ASSERT_TRUE(bed_->add_peer(0, 1));
  ASSERT_TRUE(bed_->add_peer(1, 0));
  expect_passage(0, 1);
  expect_passage(1, 0);
  expect_passage(2, 0);
}

TEST_P(PacketIoPeers, DamagedAddressesAreRefusedAndChangeNothing) {
  const auto good = bed_->end(1).local_address();
  const std::vector<std::byte> whole(good.bytes().begin(), good.bytes().end());
  for (std::size_t length = 0; length < whole.size(); ++length) {
    const auto added = add(0, std::span(whole).first(length));
    ASSERT_FALSE(added) << length << " of " << whole.size() << " bytes";
    EXPECT_EQ(added.error().code, ErrorCode::kRemote);
    EXPECT_FALSE(added.error().message.empty());
  }
  std::vector<std::byte> longer = whole;
  longer.push_back(std::byte{0});
  EXPECT_FALSE(add(0, longer));
  for (const std::byte filler : {std::byte{0}, std::byte{0x04}, std::byte{0xff}}) {
    EXPECT_FALSE(add(0, std::vector(io::AddressBlob::kMax, filler)));
  }
  EXPECT_FALSE(io::AddressBlob::of(std::vector(io::AddressBlob::kMax + 1, std::byte{1})));
  expect_passage(0, 1);
  expect_passage(1, 0);
}

TEST_P(PacketIoPeers, WhatWaitsFromARemovedPeerIsDroppedAndWhatWasReceivedStays) {
  PayloadBuffer buffer(bed_->end(0), kSize, 5);
  send(0, 1, buffer);
  std::array<io::RxPacket, 1> kept;
  for (int round = 0; round < 1000; ++round) {
    const auto got = bed_->end(1).receive(kept);
    ASSERT_TRUE(got);
    if (*got == 1) break;
    ASSERT_LT(round, 999);
    bed_->advance(std::chrono::milliseconds(1));
  }
  send(0, 1, buffer, 20);
  bed_->end(0);  // what decorators hold leaves
  bed_->advance(std::chrono::milliseconds(20));
  const io::PeerId gone = bed_->peer(1, 0);
  ASSERT_TRUE(bed_->end(1).remove_peer(gone));
  EXPECT_TRUE(std::ranges::equal(kept[0].payload, buffer.bytes));
  bed_->end(1).release(kept);
  EXPECT_TRUE(collect(*bed_, 1, 1).empty());
  const auto again = bed_->end(1).remove_peer(gone);
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, ErrorCode::kInvalidArgument);
  ASSERT_TRUE(bed_->add_peer(1, 0));
  expect_passage(0, 1);
}

TEST_P(PacketIoPeers, APeerMayBeRemovedWhileItsPacketsAreOnTheirWay) {
  PayloadBuffer buffer(bed_->end(0), kSize, 6);
  send(0, 1, buffer, 20);
  const io::PeerId gone = bed_->peer(0, 1);
  ASSERT_TRUE(bed_->end(0).remove_peer(gone));
  io::TxPacket packet;
  packet.peer = gone;
  packet.header = header_of(8, 3);
  const auto refused = bed_->end(0).send(std::span(&packet, 1));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  expect_passage(0, 2);
  static_cast<void>(collect(*bed_, 1, 20, std::chrono::milliseconds(100)));
  ASSERT_TRUE(bed_->add_peer(0, 1));
  expect_passage(0, 1);
}

bool readable(std::span<const int> fds, int milliseconds) {
  std::vector<pollfd> waited;
  for (const int fd : fds) waited.push_back({fd, POLLIN, 0});
  return ::poll(waited.data(), waited.size(), milliseconds) > 0;
}

// Where there are descriptors: none is readable while nothing came, and one is when something did, or before_sleep()
// said so.
TEST_P(PacketIoPeers, DescriptorsTellOfWhatCame) {
  io::PacketIo& end = bed_->end(1);
  const auto fds = end.ready_fds();
  EXPECT_TRUE(std::ranges::equal(fds, end.ready_fds()));
  if (fds.empty()) return;
  expect_passage(0, 1);
  PayloadBuffer buffer(bed_->end(0), kSize, 7);
  for (int round = 0; round < 3; ++round) {
    bool quiet = false;
    for (int i = 0; i < 100 && !quiet; ++i) {
      EXPECT_TRUE(collect(*bed_, 1, 1, std::chrono::milliseconds(1)).empty());
      quiet = end.before_sleep() > Duration(0) && !readable(fds, 0);
    }
    EXPECT_TRUE(quiet) << "it tells of something all the time";
    send(0, 1, buffer);
    bed_->end(0);
    EXPECT_TRUE(readable(fds, 2000));
    EXPECT_EQ(collect(*bed_, 1, 1, std::chrono::seconds(1)).size(), 1u);
    send(0, 1, buffer);
    bed_->end(0);
    bed_->advance(std::chrono::milliseconds(20));
    EXPECT_TRUE(end.before_sleep() <= Duration(0) || readable(fds, 0)) << "what came before one sleeps";
    EXPECT_EQ(collect(*bed_, 1, 1, std::chrono::seconds(1)).size(), 1u);
  }
}

TEST_P(PacketIoPeers, TheLinkIsSaidWithAllItsTimes) {
  for (std::size_t i = 0; i < PacketIoBed::kEnds; ++i) {
    const io::LinkProfile& link = bed_->end(i).link();
    EXPECT_GT(link.base_rtt, Duration(0));
    EXPECT_GT(link.jitter, Duration(0));
    EXPECT_GT(link.wake_cost, Duration(0));
    EXPECT_NE(bed_->end(i).reach().kinds & gdr::kHostOnly, 0u);
  }
}

INSTANTIATE_TEST_SUITE_P(Implementations, PacketIoPeers, ::testing::ValuesIn(packet_ios_under_test()),
                         [](const auto& suite) { return suite.param.name; });

}  // namespace
}  // namespace clustar::transport::conformance
