#include <dlfcn.h>
#include <gtest/gtest.h>

#include "tests/own_process.h"
#include "tests/plugin/plugin_under_test.h"
#include "tests/psk_file.h"
#include "tests/sanitized.h"

namespace clustar::tests {
namespace {

void cycle() {
  const auto plugin = open_plugin(12);
  void* context = nullptr;
  ASSERT_EQ(plugin->init(1, -1, &context), nccl_abi::kSuccess);
  const PluginConnection connection = connect_to_self(*plugin, context);
  transfer(*plugin, connection, 1000);
  close(*plugin, connection);
  ASSERT_EQ(plugin->finalize(context), nccl_abi::kSuccess);
}

// Memory, descriptors and threads, after the first ones have filled what is kept.
void expect_flat(int cycles) {
  for (int i = 0; i < 50; ++i) cycle();
  const std::size_t memory = resident_kib();
  const std::size_t descriptors = open_descriptors();
  const std::size_t threads = running_threads();
  for (int i = 0; i < cycles; ++i) cycle();
  EXPECT_EQ(open_descriptors(), descriptors);
  EXPECT_LE(threads_left(threads), threads);
  // A leak of one small object a cycle would show as tens of KiB; libstdc++'s pool alone would be 71 MB.
  EXPECT_LT(resident_kib(), memory + 512);
  ::testing::Test::RecordProperty("resident_kib_before", static_cast<int>(memory));
  ::testing::Test::RecordProperty("resident_kib_after", static_cast<int>(resident_kib()));
}

TEST(Reload, AThousandCyclesLeaveMemoryDescriptorsAndThreadsFlat) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer's own bookkeeping of loaded objects grows with every reload";
  const Environment environment(Variables{});
  expect_flat(1000);
}

// OpenSSL itself stays: it is linked so.
TEST(Reload, AKeyAndItsModuleLeaveNothingBehind) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer's own bookkeeping of loaded objects grows with every reload";
  const std::string module = CLUSTAR_CRYPTO_MODULE;
  if (module.empty()) GTEST_SKIP() << "this build has no crypto module: no OpenSSL 3 (package libssl-dev)";
  const PskFile file("a secret of the tests");
  const Environment environment(Variables{{"CLUSTAR_PSK_FILE", file.path()}, {"CLUSTAR_PSK_MODE", "encrypt"}});
  expect_flat(300);
  EXPECT_EQ(dlopen(module.c_str(), RTLD_NOW | RTLD_NOLOAD), nullptr);
}

// Its agent's thread tries and tries again: nobody listens there.
TEST(Reload, AnAgentLeavesNothingBehind) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer's own bookkeeping of loaded objects grows with every reload";
  const Environment environment(
      Variables{{"CLUSTAR_SEND_ORDER", "coflow"}, {"CLUSTAR_COORDINATOR", "127.0.0.1:1,127.0.0.1:2"}});
  expect_flat(300);
  EXPECT_EQ(dlopen(kPluginPath, RTLD_NOW | RTLD_NOLOAD), nullptr);
}

TEST(Reload, TheLibraryReallyLeavesTheProcess) {
  if (kSanitized) GTEST_SKIP() << "sanitizers keep libraries loaded to symbolize reports";
  const Environment environment(Variables{});
  cycle();
  EXPECT_EQ(dlopen(kPluginPath, RTLD_NOW | RTLD_NOLOAD), nullptr);
}

}  // namespace
}  // namespace clustar::tests
