#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/plugin/plugin_under_test.h"

namespace clustar::tests {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

TEST(PluginVersions, EightToTwelveAreExportedAndNothingElse) {
  EXPECT_EQ(NetPlugin::exported_versions(kPluginPath).value(), (std::vector<int>{12, 11, 10, 9, 8}));
}

class PluginVersion : public ::testing::TestWithParam<int> {};

TEST_P(PluginVersion, LoadsDescribesAndTransfers) {
  const Environment environment(Variables{});
  const auto plugin = open_plugin(GetParam());
  ASSERT_TRUE(plugin);
  EXPECT_STREQ(plugin->name(), "clustar");
  void* context = nullptr;
  ASSERT_EQ(plugin->init(42, 7, &context), nccl_abi::kSuccess);
  const std::string banner = joined_log(*plugin);
  EXPECT_THAT(banner, ContainsRegex("clustar " CLUSTAR_VERSION
                                    "( .commit [0-9a-f]+(, changed)?.)?: transport tcp, devices: lo"));
  EXPECT_THAT(banner, HasSubstr("not chosen: verbs: "));
  EXPECT_THAT(banner, HasSubstr("socket_ifname = =lo (environment)"));
  int devices = 0;
  ASSERT_EQ(plugin->devices(&devices), nccl_abi::kSuccess);
  ASSERT_EQ(devices, 1);
  bench::proxy::NetProperties properties;
  ASSERT_EQ(plugin->get_properties(0, &properties), nccl_abi::kSuccess);
  EXPECT_EQ(properties.name, "lo");
  EXPECT_EQ(properties.ptr_support, nccl_abi::kPtrHost);
  EXPECT_EQ(properties.max_recvs, 8);
  EXPECT_FALSE(properties.reg_is_global);
  EXPECT_NE(plugin->get_properties(1, &properties), nccl_abi::kSuccess);
  EXPECT_NE(plugin->get_properties(-1, &properties), nccl_abi::kSuccess);
  const PluginConnection connection = connect_to_self(*plugin, context);
  for (const std::size_t size : {0ul, 1ul, 65536ul, 3000001ul}) transfer(*plugin, connection, size);
  close(*plugin, connection);
  EXPECT_EQ(plugin->finalize(context), nccl_abi::kSuccess);
}

TEST_P(PluginVersion, WrongArgumentsAreErrorsAndTheCommSurvives) {
  const Environment environment(Variables{});
  const auto plugin = open_plugin(GetParam());
  void* context = nullptr;
  ASSERT_EQ(plugin->init(1, -1, &context), nccl_abi::kSuccess);
  const PluginConnection connection = connect_to_self(*plugin, context);
  std::vector<char> memory(100);
  void* mr = nullptr;
  EXPECT_EQ(plugin->reg_mr(connection.send, memory.data(), 100, nccl_abi::kPtrCuda, &mr), nccl_abi::kInvalidArgument);
  EXPECT_EQ(mr, nullptr);
  ASSERT_EQ(plugin->reg_mr(connection.send, memory.data(), 100, nccl_abi::kPtrHost, &mr), nccl_abi::kSuccess);
  void* request = nullptr;
  EXPECT_EQ(plugin->isend(connection.send, memory.data(), 101, 0, mr, nullptr, &request), nccl_abi::kInvalidArgument);
  EXPECT_EQ(plugin->isend(connection.send, memory.data() - 1, 10, 0, mr, nullptr, &request),
            nccl_abi::kInvalidArgument);
  EXPECT_EQ(plugin->isend(connection.send, memory.data(), 10, 0, nullptr, nullptr, &request),
            nccl_abi::kInvalidArgument);
  EXPECT_EQ(request, nullptr);
  EXPECT_THAT(joined_log(*plugin), HasSubstr("outside the registered 100 bytes"));
  std::vector<void*> data(9, memory.data());
  std::vector<std::size_t> sizes(9, 1);
  std::vector<int> tags(9, 0);
  std::vector<void*> mrs(9, mr);
  EXPECT_EQ(plugin->irecv(connection.recv, 9, data.data(), sizes.data(), tags.data(), mrs.data(), nullptr, &request),
            nccl_abi::kInvalidArgument);
  EXPECT_EQ(plugin->irecv(connection.recv, 0, data.data(), sizes.data(), tags.data(), mrs.data(), nullptr, &request),
            nccl_abi::kInvalidArgument);
  int done = 0;
  EXPECT_EQ(plugin->test(nullptr, &done, nullptr), nccl_abi::kInvalidArgument);
  plugin->dereg_mr(connection.send, mr);
  transfer(*plugin, connection, 1000);
  close(*plugin, connection);
  plugin->finalize(context);
}

TEST_P(PluginVersion, DamagedHandlesAreRefused) {
  const Environment environment(Variables{});
  const auto plugin = open_plugin(GetParam());
  void* context = nullptr;
  ASSERT_EQ(plugin->init(1, -1, &context), nccl_abi::kSuccess);
  void* listen = nullptr;
  Handle good{};
  ASSERT_EQ(plugin->listen(context, 0, &good, &listen), nccl_abi::kSuccess);
  for (const std::size_t byte : {0u, 8u, 127u}) {  // magic, version, and the state that connect keeps there
    Handle bad = good;
    bad[byte] = std::byte{0x7f};
    void* send = nullptr;
    EXPECT_EQ(plugin->connect(context, 0, &bad, &send), nccl_abi::kInvalidArgument) << byte;
    EXPECT_EQ(send, nullptr);
  }
  EXPECT_EQ(plugin->close_listen(listen), nccl_abi::kSuccess);
  plugin->finalize(context);
}

INSTANTIATE_TEST_SUITE_P(Abi, PluginVersion, ::testing::Values(8, 9, 10, 11, 12),
                         [](const auto& suite) { return "v" + std::to_string(suite.param); });

TEST(PluginContexts, CommunicatorsAreIndependent) {
  const Environment environment(Variables{});
  const auto plugin = open_plugin(11);
  void* first = nullptr;
  void* second = nullptr;
  ASSERT_EQ(plugin->init(1, -1, &first), nccl_abi::kSuccess);
  ASSERT_EQ(plugin->init(2, -1, &second), nccl_abi::kSuccess);
  EXPECT_NE(first, second);
  const PluginConnection connection = connect_to_self(*plugin, second);
  EXPECT_EQ(plugin->finalize(first), nccl_abi::kSuccess);
  transfer(*plugin, connection, 5000);
  close(*plugin, connection);
  EXPECT_EQ(plugin->finalize(second), nccl_abi::kSuccess);
  EXPECT_EQ(plugin->finalize(nullptr), nccl_abi::kSuccess) << "as NCCL calls it after a failed init";
  void* third = nullptr;
  ASSERT_EQ(plugin->init(3, -1, &third), nccl_abi::kSuccess) << "init after the last finalize";
  EXPECT_EQ(plugin->finalize(third), nccl_abi::kSuccess);
}

}  // namespace
}  // namespace clustar::tests
