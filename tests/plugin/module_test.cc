#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <fstream>
#include <iterator>

#include "tests/plugin/installation.h"
#include "tests/plugin/plugin_under_test.h"
#include "tests/psk_file.h"
#include "tests/temp_path.h"
#include "transport/module_build.h"

namespace clustar::tests {
namespace {

using ::testing::HasSubstr;

std::string banner_of(const Installation& installation, const Variables& variables = {}) {
  const Environment environment(variables);
  const auto plugin = open_plugin(11, installation.plugin());
  void* context = nullptr;
  EXPECT_EQ(plugin->init(1, -1, &context), nccl_abi::kSuccess);
  const PluginConnection connection = connect_to_self(*plugin, context);
  transfer(*plugin, connection, 100000);
  close(*plugin, connection);
  EXPECT_EQ(plugin->finalize(context), nccl_abi::kSuccess);
  return joined_log(*plugin);
}

TEST(Modules, AModuleThatCannotBeOpenedIsAReasonNotAFailure) {
  const Installation installation;
  std::ofstream(installation.module("verbs")) << "not an object file";
  const std::string banner = banner_of(installation);
  EXPECT_THAT(banner, HasSubstr("not chosen: verbs: "));
  EXPECT_THAT(banner, HasSubstr("libclustar-verbs.so: "));
  EXPECT_THAT(banner, HasSubstr("transport tcp"));
}

TEST(Modules, ALibraryThatIsNoModuleIsSaidToBeNone) {
  const Installation installation;
  fs::copy_file(kPluginPath, installation.module("verbs"));
  EXPECT_THAT(banner_of(installation), HasSubstr("libclustar-verbs.so is not a module of clustar"));
}

TEST(Modules, AModuleOfThisBuildIsUsed) {
  const Installation installation;
  fs::copy_file(CLUSTAR_TEST_MODULE, installation.module("verbs"));
  const std::string banner = banner_of(installation, {{"CLUSTAR_TRANSPORT", "verbs"}});
  EXPECT_THAT(banner, HasSubstr("the test module was asked for a transport"));
}

// The same module, that says it speaks by other headers.
TEST(Modules, AModuleOfAnotherBuildIsRefused) {
  const Installation installation;
  std::ifstream original(CLUSTAR_TEST_MODULE, std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(original)), std::istreambuf_iterator<char>());
  const std::string build = CLUSTAR_MODULE_BUILD;
  std::size_t places = 0;
  for (std::size_t at = bytes.find(build); at != std::string::npos; at = bytes.find(build, at + 1), ++places) {
    bytes[at] = bytes[at] == '0' ? '1' : '0';
  }
  ASSERT_GE(places, 1u);
  std::ofstream(installation.module("verbs"), std::ios::binary) << bytes;
  EXPECT_THAT(banner_of(installation),
              HasSubstr("libclustar-verbs.so comes from another build; install plugin and modules together"));
}

TEST(Modules, AModuleWithoutItsHardwareGivesItsReasonAndTheNextBestIsTaken) {
  const Installation installation;
  fs::copy_file(CLUSTAR_TEST_MODULE, installation.module("verbs"));
  const std::string banner = banner_of(installation, {{"CLUSTAR_TCP_SOCKETS", "13"}});
  EXPECT_THAT(banner, HasSubstr("not chosen: verbs: no device of this kind"));
}

TEST(Modules, ForbiddenNicsAreAReasonAndOursCanAllowThemAgain) {
  const Installation installation;
  fs::copy_file(CLUSTAR_TEST_MODULE, installation.module("verbs"));
  EXPECT_THAT(banner_of(installation, {{"NCCL_IB_DISABLE", "1"}}),
              HasSubstr("not chosen: verbs: NCCL_IB_DISABLE = 1 forbids RDMA NICs; CLUSTAR_IB_DISABLE=0 allows"));
  EXPECT_THAT(banner_of(installation, {{"NCCL_IB_DISABLE", "1"}, {"CLUSTAR_IB_DISABLE", "0"}}),
              HasSubstr("the test module was asked for a transport"));
}

TEST(Modules, WhatOfNcclsSettingsIsNotTakenIsAWarning) {
  const Installation installation;
  const std::string log = banner_of(installation, {{"NCCL_IB_TIMEOUT", "40"}, {"NCCL_IB_SL", "3"}});
  EXPECT_THAT(log, HasSubstr("NCCL_IB_TIMEOUT = '40' is ignored: clustar takes a number from 1 to 22"));
  EXPECT_THAT(log, HasSubstr("ib_sl = 3 (NCCL_IB_SL)"));
}

// The plugin's own mlt over devices that a module opens: they end before the module does.
TEST(Modules, MltRunsOverTheDevicesOfAModule) {
  const Installation installation;
  fs::copy_file(CLUSTAR_TEST_MODULE, installation.module("verbs"));
  const Variables variables{{"CLUSTAR_TRANSPORT", "mlt"}, {"CLUSTAR_IO", "verbs_ud"}};
  const std::string log = banner_of(installation, variables);
  EXPECT_THAT(log, HasSubstr("transport mlt"));
  EXPECT_THAT(log, HasSubstr("a device of the test module"));
  EXPECT_EQ(dlopen(installation.module("verbs").c_str(), RTLD_NOW | RTLD_NOLOAD), nullptr);
}

// What is logged where every connection is refused.
std::string refusal_of(const Installation& installation, const Variables& variables) {
  const Environment environment(variables);
  const auto plugin = open_plugin(11, installation.plugin());
  void* context = nullptr;
  EXPECT_EQ(plugin->init(1, -1, &context), nccl_abi::kSuccess);
  Handle handle{};
  void* comm = nullptr;
  EXPECT_EQ(plugin->listen(context, 0, &handle, &comm), nccl_abi::kSystemError);
  int device = -1;
  const std::array members{0, 1};
  EXPECT_EQ(plugin->make_v_device(members, &device), nccl_abi::kInvalidUsage);
  EXPECT_EQ(plugin->finalize(context), nccl_abi::kSuccess);
  return joined_log(*plugin);
}

TEST(Modules, ADatapathThatIsNotThereIsRefusedWithItsReason) {
  const Installation installation;
  Variables variables{{"CLUSTAR_TRANSPORT", "mlt"}, {"CLUSTAR_IO", "verbs_ud"}};
  EXPECT_THAT(refusal_of(installation, variables),
              HasSubstr("CLUSTAR_IO=verbs_ud: libclustar-verbs.so is not beside the plugin, in '" +
                        fs::path(installation.plugin()).parent_path().string() + "'"));
  fs::copy_file(CLUSTAR_TEST_MODULE, installation.module("verbs"));
  variables["CLUSTAR_IB_HCA"] = "absent";
  EXPECT_THAT(refusal_of(installation, variables), HasSubstr("CLUSTAR_IO=verbs_ud: no NIC of the test module"));
  variables.erase("CLUSTAR_IB_HCA");
  variables["CLUSTAR_IO"] = "verbs_uc";
  EXPECT_THAT(refusal_of(installation, variables), HasSubstr("CLUSTAR_IO=verbs_uc: libclustar-verbs.so has no such"));
}

TEST(Modules, TheVerbsModuleOfThisBuildLoadsAndSaysWhatIsMissing) {
  const std::string module = CLUSTAR_VERBS_MODULE;
  if (module.empty()) GTEST_SKIP() << "this build has no verbs module: no libibverbs (package libibverbs-dev)";
  const Installation installation;
  fs::copy_file(module, installation.module("verbs"));
  // A name that no device has: so it is refused on machines with RDMA, too.
  const std::string log = banner_of(installation, {{"CLUSTAR_IB_HCA", "=no_such_device"}});
  EXPECT_THAT(log, HasSubstr("not chosen: verbs: "));
  EXPECT_THAT(log, ::testing::AnyOf(HasSubstr("no RDMA device matches"), HasSubstr("without RDMA"), HasSubstr("ibv_")));
  EXPECT_THAT(log, HasSubstr("transport tcp"));
}

TEST(Modules, AKeyWithoutTheCryptoModuleIsRefusedAndNothingElseIsTaken) {
  const Installation installation;
  const PskFile file("a secret of the tests");
  const Environment environment(Variables{{"CLUSTAR_PSK_FILE", file.path()}});
  const auto plugin = open_plugin(11, installation.plugin());
  void* context = nullptr;
  EXPECT_EQ(plugin->init(1, -1, &context), nccl_abi::kSuccess);
  Handle handle{};
  void* comm = nullptr;
  EXPECT_EQ(plugin->listen(context, 0, &handle, &comm), nccl_abi::kSystemError);
  EXPECT_EQ(plugin->finalize(context), nccl_abi::kSuccess);
  const std::string log = joined_log(*plugin);
  EXPECT_THAT(log, HasSubstr("libclustar-crypto.so is not beside the plugin"));
  EXPECT_THAT(log, HasSubstr("tcp protects nothing"));
}

TEST(Modules, AKeyTakesTheTransportThatProtectsByTheModuleBeside) {
  const std::string module = CLUSTAR_CRYPTO_MODULE;
  if (module.empty()) GTEST_SKIP() << "this build has no crypto module: no OpenSSL 3 (package libssl-dev)";
  const Installation installation;
  fs::copy_file(module, installation.module("crypto"));
  const PskFile file("a secret of the tests");
  for (const char* mode : {"authenticate", "encrypt"}) {
    const std::string log = banner_of(installation, {{"CLUSTAR_PSK_FILE", file.path()}, {"CLUSTAR_PSK_MODE", mode}});
    EXPECT_THAT(log, HasSubstr("transport mlt"));
    EXPECT_THAT(log, HasSubstr(" 0 unauthenticated dropped, 0 replayed"));
    EXPECT_THAT(log, HasSubstr("OpenSSL 3"));
    EXPECT_THAT(log, ::testing::Not(HasSubstr("a secret")));
  }
}

}  // namespace
}  // namespace clustar::tests
