// makeVDevice as NCCL calls it (NCCL v2.28.9 src/graph/topo.cc), with a transport that fuses and one that does not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/plugin/installation.h"
#include "tests/plugin/plugin_under_test.h"

namespace clustar::tests {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const Variables kFusing{{"CLUSTAR_TRANSPORT", "verbs"}, {"CLUSTAR_IB_HCA", "fusing"}};

int fuse(NetPlugin& plugin, const std::vector<int>& members, int* device) {
  return plugin.make_v_device(members, device);
}

int count_devices(NetPlugin& plugin) {
  int count = 0;
  EXPECT_EQ(plugin.devices(&count), nccl_abi::kSuccess);
  return count;
}

class Fusion : public ::testing::TestWithParam<int> {
 protected:
  Fusion() { fs::copy_file(CLUSTAR_TEST_MODULE, installation_.module("verbs")); }
  Installation installation_;
};

TEST_P(Fusion, PortsBecomeOneDeviceThatConnectsAndTransfers) {
  const Environment environment(kFusing);
  const auto plugin = open_plugin(GetParam(), installation_.plugin());
  EXPECT_TRUE(plugin->has_make_v_device());
  void* context = nullptr;
  ASSERT_EQ(plugin->init(1, -1, &context), nccl_abi::kSuccess);
  ASSERT_EQ(count_devices(*plugin), 2);
  int device = -1;
  ASSERT_EQ(fuse(*plugin, {0, 1}, &device), nccl_abi::kSuccess);
  EXPECT_EQ(device, 2);
  EXPECT_EQ(count_devices(*plugin), 3);
  bench::proxy::NetProperties plain;
  bench::proxy::NetProperties fused;
  ASSERT_EQ(plugin->get_properties(1, &plain), nccl_abi::kSuccess);
  ASSERT_EQ(plugin->get_properties(2, &fused), nccl_abi::kSuccess);
  EXPECT_EQ(fused.name, "port_a+port_b");
  EXPECT_EQ(fused.speed_mbps, 2 * plain.speed_mbps);
  EXPECT_THAT(fused.fused, ElementsAre(0, 1));
  EXPECT_THAT(plain.fused, ElementsAre(1));
  EXPECT_TRUE(fused.force_flush);
  EXPECT_FALSE(plain.force_flush);
  EXPECT_EQ(fused.rail_id, GetParam() >= 12 ? 5 : -1);
  EXPECT_EQ(plain.plane_id, GetParam() >= 12 ? 1 : -1);
  EXPECT_EQ(fused.plane_id, -1);
  EXPECT_THAT(joined_log(*plugin), HasSubstr("device 2: port_a+port_b"));
  const PluginConnection connection = connect_to_self(*plugin, context, device);
  transfer(*plugin, connection, 100000);
  close(*plugin, connection);
  EXPECT_EQ(fuse(*plugin, {0, 1}, &device), nccl_abi::kSuccess);
  EXPECT_EQ(device, 2) << "another communicator asks again";
  EXPECT_EQ(count_devices(*plugin), 3);
  EXPECT_EQ(plugin->finalize(context), nccl_abi::kSuccess);
}

TEST_P(Fusion, WhatCannotBeFusedIsInvalidUsageAndChangesNothing) {
  const Environment environment(kFusing);
  const auto plugin = open_plugin(GetParam(), installation_.plugin());
  int device = -1;
  EXPECT_EQ(fuse(*plugin, {0, 1}, &device), nccl_abi::kInvalidUsage) << "before init";
  void* context = nullptr;
  ASSERT_EQ(plugin->init(1, -1, &context), nccl_abi::kSuccess);
  for (const std::vector<int>& members : {std::vector<int>{}, {0, 0}, {0, 2}, {-1, 0}, {0, 1, 2}}) {
    EXPECT_EQ(fuse(*plugin, members, &device), nccl_abi::kInvalidUsage) << members.size();
  }
  EXPECT_EQ(device, -1);
  EXPECT_EQ(count_devices(*plugin), 2);
  EXPECT_THAT(joined_log(*plugin), HasSubstr("not fused: device 0 is to be fused with itself"));
  ASSERT_EQ(fuse(*plugin, {1}, &device), nccl_abi::kSuccess);
  EXPECT_EQ(device, 1);
  EXPECT_EQ(plugin->finalize(context), nccl_abi::kSuccess);
}

TEST_P(Fusion, ATransportThatFusesNothingSaysSoAndGoesOn) {
  const Environment environment(Variables{});
  const auto plugin = open_plugin(GetParam());
  void* context = nullptr;
  ASSERT_EQ(plugin->init(1, -1, &context), nccl_abi::kSuccess);
  int device = -1;
  EXPECT_EQ(fuse(*plugin, {0, 0}, &device), nccl_abi::kInvalidUsage);
  EXPECT_EQ(fuse(*plugin, {0}, &device), nccl_abi::kInvalidUsage);
  EXPECT_EQ(count_devices(*plugin), 1);
  EXPECT_THAT(joined_log(*plugin), HasSubstr("not fused: tcp fuses no devices"));
  const PluginConnection connection = connect_to_self(*plugin, context);
  transfer(*plugin, connection, 1000);
  close(*plugin, connection);
  EXPECT_EQ(plugin->finalize(context), nccl_abi::kSuccess);
}

TEST_P(Fusion, PortsWithoutAPciPathStayApartSinceNcclWouldFindNoPlaceForThem) {
  const Environment environment({{"CLUSTAR_TRANSPORT", "verbs"}, {"CLUSTAR_IB_HCA", "fusing-virtual"}});
  const auto plugin = open_plugin(GetParam(), installation_.plugin());
  void* context = nullptr;
  ASSERT_EQ(plugin->init(1, -1, &context), nccl_abi::kSuccess);
  int device = -1;
  EXPECT_EQ(fuse(*plugin, {0, 1}, &device), nccl_abi::kInvalidUsage);
  EXPECT_EQ(device, -1);
  EXPECT_EQ(count_devices(*plugin), 2);
  EXPECT_THAT(joined_log(*plugin), HasSubstr("not fused: port_a has no PCI path"));
  EXPECT_EQ(fuse(*plugin, {1}, &device), nccl_abi::kSuccess) << "one device is nothing to fuse";
  EXPECT_EQ(device, 1);
  const PluginConnection connection = connect_to_self(*plugin, context, 1);
  transfer(*plugin, connection, 1000);
  close(*plugin, connection);
  EXPECT_EQ(plugin->finalize(context), nccl_abi::kSuccess);
}

INSTANTIATE_TEST_SUITE_P(Abi, Fusion, ::testing::Values(9, 10, 11, 12),
                         [](const auto& suite) { return "v" + std::to_string(suite.param); });

// NCCL keeps its list of virtual devices while it keeps the library, which may be longer than any communicator lives.
TEST(FusionAgain, WhatNcclRemembersIsMadeAgainAndNothingElse) {
  const Installation installation;
  fs::copy_file(CLUSTAR_TEST_MODULE, installation.module("verbs"));
  const Environment environment(kFusing);
  const auto plugin = open_plugin(11, installation.plugin());
  void* context = nullptr;
  int device = -1;
  bench::proxy::NetProperties properties;
  ASSERT_EQ(plugin->init(1, -1, &context), nccl_abi::kSuccess);
  EXPECT_NE(plugin->get_properties(2, &properties), nccl_abi::kSuccess);
  ASSERT_EQ(fuse(*plugin, {1, 0}, &device), nccl_abi::kSuccess);
  ASSERT_EQ(plugin->finalize(context), nccl_abi::kSuccess);

  ASSERT_EQ(plugin->init(2, -1, &context), nccl_abi::kSuccess);
  EXPECT_EQ(count_devices(*plugin), 2) << "a NCCL that starts over takes what devices() gives for plain ones";
  ASSERT_EQ(plugin->get_properties(2, &properties), nccl_abi::kSuccess);
  EXPECT_EQ(properties.name, "port_b+port_a");
  EXPECT_NE(plugin->get_properties(3, &properties), nccl_abi::kSuccess);
  const PluginConnection connection = connect_to_self(*plugin, context, 2);
  transfer(*plugin, connection, 1000);
  close(*plugin, connection);
  ASSERT_EQ(plugin->finalize(context), nccl_abi::kSuccess);

  ASSERT_EQ(plugin->init(3, -1, &context), nccl_abi::kSuccess);
  ASSERT_EQ(fuse(*plugin, {0, 1}, &device), nccl_abi::kSuccess);
  EXPECT_EQ(device, 2) << "fusing again does not give the former ones, too";
  EXPECT_EQ(count_devices(*plugin), 3);
  EXPECT_NE(plugin->get_properties(3, &properties), nccl_abi::kSuccess);
  EXPECT_EQ(plugin->finalize(context), nccl_abi::kSuccess);
}

TEST(FusionAgain, OtherPortsAreNotFusedInThePlaceOfThoseThatNcclKnows) {
  const Installation installation;
  fs::copy_file(CLUSTAR_TEST_MODULE, installation.module("verbs"));
  void* context = nullptr;
  int device = -1;
  bench::proxy::NetProperties properties;
  std::unique_ptr<NetPlugin> plugin;
  {
    const Environment environment(kFusing);
    plugin = open_plugin(11, installation.plugin());
    ASSERT_EQ(plugin->init(1, -1, &context), nccl_abi::kSuccess);
    ASSERT_EQ(fuse(*plugin, {1, 0}, &device), nccl_abi::kSuccess);
    ASSERT_EQ(plugin->finalize(context), nccl_abi::kSuccess);
  }
  const Environment environment({{"CLUSTAR_TRANSPORT", "verbs"}, {"CLUSTAR_IB_HCA", "fusing-swapped"}});
  ASSERT_EQ(plugin->init(2, -1, &context), nccl_abi::kSuccess);
  EXPECT_NE(plugin->get_properties(2, &properties), nccl_abi::kSuccess);
  EXPECT_THAT(joined_log(*plugin), HasSubstr("the devices are others than they were"));
  EXPECT_EQ(count_devices(*plugin), 2);
  ASSERT_EQ(fuse(*plugin, {0, 1}, &device), nccl_abi::kSuccess);
  EXPECT_EQ(device, 2);
  EXPECT_EQ(plugin->finalize(context), nccl_abi::kSuccess);
}

}  // namespace
}  // namespace clustar::tests
