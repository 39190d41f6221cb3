// What the user asked for and cannot have must fail the communicator with a reason, never fall back in silence.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/plugin/installation.h"
#include "tests/plugin/plugin_under_test.h"
#include "tests/psk_file.h"

namespace clustar::tests {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// init, devices and getProperties succeed, so that NCCL takes the plugin; listen and connect then fail.
std::string expect_refusal(const Variables& variables, const std::string& path = kPluginPath) {
  const Environment environment(variables);
  const auto plugin = open_plugin(11, path);
  void* context = nullptr;
  EXPECT_EQ(plugin->init(1, -1, &context), nccl_abi::kSuccess);
  int devices = 0;
  EXPECT_EQ(plugin->devices(&devices), nccl_abi::kSuccess);
  EXPECT_GE(devices, 1);
  bench::proxy::NetProperties properties;
  EXPECT_EQ(plugin->get_properties(0, &properties), nccl_abi::kSuccess);
  Handle handle{};
  void* comm = nullptr;
  EXPECT_EQ(plugin->listen(context, 0, &handle, &comm), nccl_abi::kSystemError);
  EXPECT_EQ(plugin->connect(context, 0, &handle, &comm), nccl_abi::kSystemError);
  EXPECT_EQ(comm, nullptr);
  std::string warnings;
  for (const auto& line : plugin->take_log()) {
    if (line.level == nccl_abi::kLogWarn) warnings += line.text + "\n";
  }
  EXPECT_EQ(plugin->finalize(context), nccl_abi::kSuccess);
  return warnings;
}

TEST(Refusal, ATransportThatIsNotThere) {
  const Installation alone;
  EXPECT_THAT(expect_refusal({{"CLUSTAR_TRANSPORT", "verbs"}}, alone.plugin()),
              AllOf(HasSubstr("libclustar-verbs.so is not beside the plugin"), HasSubstr("listen refused")));
  EXPECT_THAT(expect_refusal({{"CLUSTAR_TRANSPORT", "ofi"}}, alone.plugin()),
              AllOf(HasSubstr("libclustar-ofi.so is not beside the plugin"), HasSubstr("listen refused")));
}

// What this version does not have is not offered.
TEST(Refusal, ATransportThatIsPlannedOnly) {
  EXPECT_THAT(expect_refusal({{"CLUSTAR_TRANSPORT", "dpdk"}}),
              AllOf(HasSubstr("'dpdk' is not allowed: auto | tcp | mlt | verbs | ofi"), HasSubstr("listen refused")));
}

TEST(Refusal, ARequirementThatIsNotMet) {
  const Installation alone;
  EXPECT_THAT(expect_refusal({{"CLUSTAR_REQUIRE", "mlt|verbs"}, {"CLUSTAR_SOCKET_IFNAME", "=nosuch"}}, alone.plugin()),
              AllOf(HasSubstr("mlt:"), HasSubstr("verbs:")));
  EXPECT_THAT(expect_refusal({{"CLUSTAR_REQUIRE", "mlt"}, {"CLUSTAR_TRANSPORT", "tcp"}}), HasSubstr("contradicts"));
}

TEST(Refusal, AKeyWhereNothingWouldBeProtected) {
  const PskFile good("a secret of the tests");
  const PskFile open("a secret of the tests", 0644);
  EXPECT_THAT(expect_refusal({{"CLUSTAR_PSK_FILE", good.path()}, {"CLUSTAR_TRANSPORT", "tcp"}}),
              AllOf(HasSubstr("tcp protects nothing"), HasSubstr("CLUSTAR_TRANSPORT=mlt")));
  EXPECT_THAT(expect_refusal({{"CLUSTAR_PSK_FILE", good.path()}, {"CLUSTAR_REQUIRE", "tcp"}}),
              HasSubstr("tcp protects nothing"));
  EXPECT_THAT(expect_refusal({{"CLUSTAR_PSK_FILE", open.path()}}),
              AllOf(HasSubstr("mlt: psk_file " + open.path()), HasSubstr("chmod 600"), HasSubstr("tcp protects")));
  EXPECT_THAT(expect_refusal({{"CLUSTAR_PSK_MODE", "encrypt"}}), HasSubstr("CLUSTAR_PSK_FILE"));
}

TEST(Refusal, ASettingThatIsWrong) {
  EXPECT_THAT(expect_refusal({{"CLUSTAR_TCP_SOCKETS", "99"}}),
              AllOf(HasSubstr("CLUSTAR_TCP_SOCKETS"), HasSubstr("1 to 16")));
  EXPECT_THAT(expect_refusal({{"CLUSTAR_SOKET_IFNAME", "eth"}}), HasSubstr("CLUSTAR_SOCKET_IFNAME"));
  EXPECT_THAT(expect_refusal({{"CLUSTAR_CONFIG", "/nonexistent.toml"}}), HasSubstr("/nonexistent.toml"));
}

TEST(Refusal, AnInterfaceThatIsNotThereWhenTcpIsRequired) {
  EXPECT_THAT(expect_refusal({{"CLUSTAR_REQUIRE", "tcp"}, {"CLUSTAR_SOCKET_IFNAME", "=nosuch"}}), HasSubstr("nosuch"));
}

// Wherever this runs: no transport, so nothing that could be staged.
TEST(Refusal, StagedGpuMemoryThatCannotBeHad) {
  EXPECT_THAT(expect_refusal({{"CLUSTAR_GDR", "staged"}, {"CLUSTAR_SOCKET_IFNAME", "=nosuch"}}), HasSubstr("nosuch"));
}

TEST(Refusal, WithoutARequestAnUnusablePluginStepsAside) {
  const Environment environment(Variables{{"CLUSTAR_SOCKET_IFNAME", "=nosuch"}});
  const auto plugin = open_plugin(11);
  void* context = nullptr;
  EXPECT_EQ(plugin->init(1, -1, &context), nccl_abi::kSystemError);
  EXPECT_THAT(joined_log(*plugin), HasSubstr("nosuch"));
  EXPECT_EQ(plugin->finalize(context), nccl_abi::kSuccess);
}

TEST(Refusal, ARequirementThatIsMetChangesNothing) {
  const Environment environment(Variables{{"CLUSTAR_REQUIRE", "tcp"}});
  const auto plugin = open_plugin(11);
  void* context = nullptr;
  ASSERT_EQ(plugin->init(1, -1, &context), nccl_abi::kSuccess);
  const PluginConnection connection = connect_to_self(*plugin, context);
  transfer(*plugin, connection, 100);
  close(*plugin, connection);
  plugin->finalize(context);
}

TEST(Refusal, RanksWithDifferentSettingsAreToldWhich) {
  const auto plugin = open_plugin(11);
  Handle handle{};
  void* listen = nullptr;
  void* theirs = nullptr;
  {
    const Environment environment(Variables{{"CLUSTAR_TCP_EAGER_BYTES", "1024"}});
    ASSERT_EQ(plugin->init(1, -1, &theirs), nccl_abi::kSuccess);
    ASSERT_EQ(plugin->listen(theirs, 0, &handle, &listen), nccl_abi::kSuccess);
    plugin->close_listen(listen);
    plugin->finalize(theirs);
  }
  const Environment environment(Variables{});
  void* ours = nullptr;
  ASSERT_EQ(plugin->init(1, -1, &ours), nccl_abi::kSuccess);
  void* send = nullptr;
  EXPECT_EQ(plugin->connect(ours, 0, &handle, &send), nccl_abi::kInvalidUsage);
  EXPECT_THAT(joined_log(*plugin), AllOf(HasSubstr("CLUSTAR_TCP_EAGER_BYTES is 65536 here and 1024 at 127.0.0.1")));
  plugin->finalize(ours);
}

}  // namespace
}  // namespace clustar::tests
