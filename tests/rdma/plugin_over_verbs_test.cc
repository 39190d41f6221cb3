// The plugin as NCCL sees it, over libclustar-verbs.so and the two SoftRoCE devices.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "tests/own_process.h"
#include "tests/plugin/plugin_under_test.h"
#include "tests/rdma/link.h"

namespace clustar::tests {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class PluginOverVerbs : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = why_no_devices(); !reason.empty()) GTEST_SKIP() << reason;
  }
};

TEST_F(PluginOverVerbs, AutoTakesItAndSoftRocesPortsStayApart) {
  const Environment environment(Variables{{"NCCL_IB_TC", "104"}});
  const auto plugin = open_plugin(12);
  ASSERT_TRUE(plugin);
  void* context = nullptr;
  ASSERT_EQ(plugin->init(1, -1, &context), nccl_abi::kSuccess);
  const std::string banner = joined_log(*plugin);
  EXPECT_THAT(banner, AllOf(HasSubstr("transport verbs, devices: rxe_"), HasSubstr("ib_tc = 104 (NCCL_IB_TC)")));
  int devices = 0;
  ASSERT_EQ(plugin->devices(&devices), nccl_abi::kSuccess);
  ASSERT_EQ(devices, 2);
  bench::proxy::NetProperties properties;
  ASSERT_EQ(plugin->get_properties(0, &properties), nccl_abi::kSuccess);
  EXPECT_GT(properties.max_comms, 0);
  EXPECT_GT(properties.speed_mbps, 0);
  EXPECT_EQ(properties.pci_path, "");
  const PluginConnection plain = connect_to_self(*plugin, context);
  for (const std::size_t size : {0ul, 1ul, 4096ul, 300001ul}) transfer(*plugin, plain, size);
  int fused = -1;
  const std::array members{0, 1};
  EXPECT_EQ(plugin->make_v_device(members, &fused), nccl_abi::kInvalidUsage);
  EXPECT_THAT(joined_log(*plugin), HasSubstr("has no PCI path"));
  ASSERT_EQ(plugin->devices(&devices), nccl_abi::kSuccess);
  EXPECT_EQ(devices, 2);
  close(*plugin, plain);
  EXPECT_EQ(plugin->finalize(context), nccl_abi::kSuccess);
}

TEST_F(PluginOverVerbs, ReloadsLeaveNoDescriptor) {
  const Environment environment(Variables{{"CLUSTAR_TRANSPORT", "verbs"}});
  std::size_t after_first = 0;
  for (int i = 0; i < 10; ++i) {
    {
      const auto plugin = open_plugin(12);
      void* context = nullptr;
      ASSERT_EQ(plugin->init(1, -1, &context), nccl_abi::kSuccess);
      const PluginConnection connection = connect_to_self(*plugin, context);
      transfer(*plugin, connection, 1000);
      close(*plugin, connection);
      ASSERT_EQ(plugin->finalize(context), nccl_abi::kSuccess);
    }
    if (i == 0) after_first = open_descriptors();
  }
  EXPECT_EQ(open_descriptors(), after_first);
}

}  // namespace
}  // namespace clustar::tests
