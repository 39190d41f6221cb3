#include "transport/io/verbs/gid.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace clustar::transport::io::verbs {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

Gid gid(const std::string& text) {
  Gid made;
  if (text.find(':') == std::string::npos) {
    made.bytes[10] = made.bytes[11] = 0xff;
    EXPECT_EQ(inet_pton(AF_INET, text.c_str(), made.bytes.data() + 12), 1) << text;
  } else {
    EXPECT_EQ(inet_pton(AF_INET6, text.c_str(), made.bytes.data()), 1) << text;
  }
  return made;
}

constexpr GidType kV1 = GidType::kRoceV1;
constexpr GidType kV2 = GidType::kRoceV2;

// A ConnectX port with one IPv4 and one global IPv6 address, and a VLAN on it: every address as v1 and as v2.
std::vector<GidEntry> mlx5_port() {
  return {{0, gid("fe80::966d:aeff:fe00:1"), kV1, 4, "eth2"},
          {1, gid("fe80::966d:aeff:fe00:1"), kV2, 4, "eth2"},
          {2, gid("192.168.7.4"), kV1, 4, "eth2"},
          {3, gid("192.168.7.4"), kV2, 4, "eth2"},
          {4, gid("2001:db8::7:4"), kV1, 4, "eth2"},
          {5, gid("2001:db8::7:4"), kV2, 4, "eth2"},
          {6, gid("172.16.0.4"), kV1, 9, "eth2.100"},
          {7, gid("172.16.0.4"), kV2, 9, "eth2.100"}};
}

// The same port in a pod: its own address is a macvlan's, in the holes that other pods left; theirs are not ours.
std::vector<GidEntry> pod_port() {
  return {{0, gid("fe80::966d:aeff:fe00:1"), kV1, 4, ""},
          {1, gid("fe80::966d:aeff:fe00:1"), kV2, 4, ""},
          {2, gid("192.168.7.4"), kV1, 4, ""},
          {3, gid("192.168.7.4"), kV2, 4, ""},
          {6, gid("fe80::42:1"), kV1, 3, "net1"},
          {7, gid("fe80::42:1"), kV2, 3, "net1"},
          {8, gid("10.56.0.12"), kV1, 3, "net1"},
          {9, gid("10.56.0.12"), kV2, 3, "net1"},
          {12, gid("10.56.0.13"), kV1, 5, ""},
          {13, gid("10.56.0.13"), kV2, 5, ""}};
}

std::vector<GidEntry> rxe_port() { return {{0, gid("fe80::1"), kV2, 3, "va"}, {1, gid("10.9.0.1"), kV2, 3, "va"}}; }

std::string refusal_of(const GidChoice& choice, std::uint32_t index) {
  const auto found = std::find_if(choice.refused.begin(), choice.refused.end(),
                                  [&](const GidRefusal& refusal) { return refusal.index == index; });
  return found == choice.refused.end() ? "not refused" : found->reason;
}

TEST(Gid, TellsItsKindAndItsText) {
  EXPECT_TRUE(gid("10.9.0.1").ipv4());
  EXPECT_EQ(gid("10.9.0.1").to_string(), "10.9.0.1");
  EXPECT_EQ(gid("2001:db8::1").to_string(), "2001:db8::1");
  EXPECT_FALSE(gid("2001:db8::1").link_local());
  EXPECT_TRUE(gid("fe80::1").link_local());
  EXPECT_TRUE(gid("febf::1").link_local());
  EXPECT_FALSE(gid("fec0::1").link_local());
  EXPECT_TRUE(Gid{}.empty());
}

TEST(GidChoice, TakesVersion2AndIpv4OfAnMlx5Port) {
  const auto choice = choose_gid(mlx5_port(), {});
  ASSERT_TRUE(choice.chosen);
  EXPECT_EQ(choice.chosen->index, 3u);
  EXPECT_EQ(choice.refused.size(), 7u) << "every other entry has a reason";
  EXPECT_THAT(refusal_of(choice, 1), HasSubstr("link-local"));
  EXPECT_THAT(refusal_of(choice, 2), HasSubstr("RoCE v1"));
  EXPECT_THAT(refusal_of(choice, 5), HasSubstr("index 3 comes first"));
  EXPECT_THAT(refusal_of(choice, 7), HasSubstr("index 3 comes first"));
  EXPECT_THAT(choice.summary(), HasSubstr("GID index 3 (192.168.7.4, RoCE v2) on eth2"));
}

TEST(GidChoice, FollowsTheInterfaceAndTheFamilyAskedFor) {
  const auto vlan = [](const std::string& name) { return name == "eth2.100"; };
  const auto by_interface = choose_gid(mlx5_port(), {.interface = vlan});
  ASSERT_TRUE(by_interface.chosen);
  EXPECT_EQ(by_interface.chosen->index, 7u);
  EXPECT_THAT(refusal_of(by_interface, 3), HasSubstr("eth2 is not one of those asked for"));

  const auto ipv6 = choose_gid(mlx5_port(), {.family = GidFamily::kIpv6});
  ASSERT_TRUE(ipv6.chosen);
  EXPECT_EQ(ipv6.chosen->index, 5u);
  EXPECT_THAT(refusal_of(ipv6, 3), HasSubstr("IPv6 was asked for"));
  EXPECT_FALSE(choose_gid(rxe_port(), {.family = GidFamily::kIpv6}).chosen);
}

TEST(GidChoice, ASelfAssignedAddressComesLast) {
  std::vector<GidEntry> table{{0, gid("169.254.3.1"), kV2, 4, "eth2"}, {1, gid("192.168.7.4"), kV2, 4, "eth2"}};
  EXPECT_EQ(choose_gid(table, {}).chosen->index, 1u);
  table[1].gid = gid("2001:db8::7:4");
  EXPECT_EQ(choose_gid(table, {}).chosen->index, 1u);
  table.pop_back();
  EXPECT_EQ(choose_gid(table, {}).chosen->index, 0u) << "better than nothing";
}

TEST(Gid, TheInterfaceOfItsNumberComesFirstAmongThoseWithItsAddress) {
  const std::vector<AddressOwner> owners{{gid("fe80::1"), "eth2", 4}, {gid("fe80::1"), "eth2.100", 9}};
  EXPECT_EQ(owner_of(owners, gid("fe80::1"), 4), "eth2");
  EXPECT_EQ(owner_of(owners, gid("fe80::1"), 9), "eth2.100");
  EXPECT_EQ(owner_of(owners, gid("fe80::1"), 7), "eth2") << "numbered in another namespace";
  EXPECT_EQ(owner_of(owners, gid("fe80::2"), 4), "");
}

TEST(GidChoice, TakesAPodsOwnAddressWhereverItIs) {
  const auto choice = choose_gid(pod_port(), {});
  ASSERT_TRUE(choice.chosen);
  EXPECT_EQ(choice.chosen->index, 9u);
  EXPECT_THAT(refusal_of(choice, 3), HasSubstr("network namespace"));
  EXPECT_THAT(refusal_of(choice, 13), HasSubstr("network namespace"));
}

TEST(GidChoice, DoesNotDependOnTheTablesOrder) {
  auto table = mlx5_port();
  std::reverse(table.begin(), table.end());
  ASSERT_TRUE(choose_gid(table, {}).chosen);
  EXPECT_EQ(choose_gid(table, {}).chosen->index, 3u);
}

TEST(GidChoice, Index1OfRxeWithoutBeingTold) {
  const auto choice = choose_gid(rxe_port(), {});
  ASSERT_TRUE(choice.chosen);
  EXPECT_EQ(choice.chosen->index, 1u);
}

TEST(GidChoice, AnIndexAskedForIsTakenWithItsFaultNamed) {
  const auto foreign = choose_gid(pod_port(), {.index = 3});
  ASSERT_TRUE(foreign.chosen);
  EXPECT_EQ(foreign.chosen->index, 3u);
  EXPECT_THAT(foreign.warning, HasSubstr("network namespace"));
  EXPECT_THAT(choose_gid(mlx5_port(), {.index = 7}).warning, IsEmpty());
}

TEST(GidChoice, AHoleAskedForIsAnErrorThatKnowsTheHabit) {
  const auto choice = choose_gid(rxe_port(), {.index = 3});
  EXPECT_FALSE(choice.chosen);
  EXPECT_THAT(choice.summary(), HasSubstr("mlx5"));
  EXPECT_THAT(choice.summary(), HasSubstr("10.9.0.1")) << "what there is instead";
}

TEST(GidChoice, SaysWhyNothingIsLeft) {
  const auto only_v1 = choose_gid(std::vector<GidEntry>{{0, gid("10.0.0.1"), kV1, 2, "eth0"}}, {});
  EXPECT_FALSE(only_v1.chosen);
  EXPECT_THAT(only_v1.summary(), HasSubstr("RoCE v1"));
  EXPECT_THAT(choose_gid({}, {}).summary(), HasSubstr("the table is empty"));
  EXPECT_FALSE(choose_gid(std::vector<GidEntry>{{4, Gid{}, kV2, 2, "eth0"}}, {}).chosen) << "a zero GID is a hole";
}

TEST(GidChoice, InfiniBandTakesItsFirst) {
  const auto choice = choose_gid(std::vector<GidEntry>{{0, gid("fe80::2:c903:1"), GidType::kInfiniBand, 0, ""}}, {});
  ASSERT_TRUE(choice.chosen);
  EXPECT_EQ(choice.chosen->index, 0u);
}

}  // namespace
}  // namespace clustar::transport::io::verbs
