#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/plugin/plugin_under_test.h"
#include "tests/psk_file.h"
#include "tests/temp_path.h"

namespace clustar::tests {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// An installation: the plugin in a folder of its own, where modules can be put beside it.
class Installation {
 public:
  Installation() : folder_(tests::temp_path("install")) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    fs::copy_file(kPluginPath, plugin());
  }
  ~Installation() { fs::remove_all(folder_); }
  fs::path plugin() const { return folder_ / "libnccl-net-clustar.so"; }
  fs::path module(const std::string& name) const { return folder_ / ("libclustar-" + name + ".so"); }

 private:
  fs::path folder_;
};

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

TEST(Modules, AModuleWithoutItsHardwareGivesItsReasonAndTheNextBestIsTaken) {
  const Installation installation;
  fs::copy_file(CLUSTAR_TEST_MODULE, installation.module("verbs"));
  const std::string banner = banner_of(installation, {{"CLUSTAR_TCP_SOCKETS", "13"}});
  EXPECT_THAT(banner, HasSubstr("not chosen: verbs: no device of this kind"));
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
    EXPECT_THAT(log, HasSubstr(" 0 unauthenticated and 0 replayed"));
    EXPECT_THAT(log, HasSubstr("OpenSSL 3"));
    EXPECT_THAT(log, ::testing::Not(HasSubstr("a secret")));
  }
}

}  // namespace
}  // namespace clustar::tests
