#include "transport/message/receive_groups.h"

#include <gtest/gtest.h>

#include <array>

#include "transport/api/identity_wire.h"

namespace clustar::transport {
namespace {

TEST(ReceiveGroups, IsCompleteWithItsLastPartInAnyOrder) {
  ReceiveGroups groups;
  const std::uint32_t group = groups.open(3).value();
  EXPECT_EQ(groups.outstanding(), 1u);
  groups.finish(group, 2, 30);
  groups.finish(group, 0, 10);
  EXPECT_FALSE(groups.complete(group));
  groups.identify(group, 1, {.known = true, .number = 7});
  groups.finish(group, 1, 0);
  EXPECT_TRUE(groups.complete(group));
  ASSERT_EQ(groups.sizes(group).size(), 3u);
  EXPECT_EQ(groups.sizes(group)[2], 30u);
  EXPECT_EQ(groups.messages(group)[1].identity.number, 7u);
  EXPECT_FALSE(groups.messages(group)[0].identity.known);
  groups.release(group);
  EXPECT_EQ(groups.outstanding(), 0u);
}

TEST(ReceiveGroups, NumbersAreGivenOutAgainWithoutWhatWasBefore) {
  ReceiveGroups groups;
  for (std::uint32_t i = 0; i < ReceiveGroups::kMost; ++i) EXPECT_TRUE(groups.open(1));
  EXPECT_FALSE(groups.open(1));
  groups.identify(5, 0, {.known = true});
  groups.finish(5, 0, 1);
  groups.release(5);
  EXPECT_EQ(groups.open(2), 5u);
  EXPECT_FALSE(groups.complete(5));
  EXPECT_FALSE(groups.messages(5)[0].identity.known);
  EXPECT_FALSE(groups.open(1));
}

TEST(IdentityWire, EveryFieldSurvivesAndTheLayoutStays) {
  const MessageIdentity sent{.communicator = 0x0102030405060708,
                             .number = MessageIdentity::kNumbers - 2,
                             .total_bytes = 1ull << 40,
                             .transfer = 0x01020304,
                             .channel = 31,
                             .sender = 1023,
                             .function = 1,
                             .datatype = 2,
                             .algorithm = 3,
                             .protocol = 4};
  std::array<std::byte, kIdentityWireSize> bytes;
  serialize_identity(sent, bytes);
  MessageIdentity read;
  parse_identity(bytes, read);
  EXPECT_EQ(read, sent);
  EXPECT_EQ(bytes[0], std::byte{1});
  EXPECT_EQ(bytes[13], std::byte{0xfe}) << "the number's last byte";
  EXPECT_EQ(bytes[14], std::byte{3}) << "the sender's first";
  EXPECT_EQ(bytes[24], std::byte{1});
  EXPECT_EQ(bytes[33], std::byte{4});
}

}  // namespace
}  // namespace clustar::transport
