// clustarApi_v1 as a program finds it: by dlsym in the library that NCCL has loaded.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "nccl_plugin/abi/types.h"
#include "nccl_plugin/clustar.h"
#include "tests/plugin/plugin_under_test.h"

namespace clustar {
namespace {

class PluginApi : public testing::Test {
 protected:
  void SetUp() override {
    library_ = dlopen(CLUSTAR_PLUGIN, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library_, nullptr) << dlerror();
    api_ = static_cast<const clustarApi_v1_t*>(dlsym(library_, "clustarApi_v1"));
    ASSERT_NE(api_, nullptr);
    ASSERT_EQ(api_->size, sizeof *api_);
  }
  void TearDown() override {
    if (library_ != nullptr) dlclose(library_);
  }

  void* library_ = nullptr;
  const clustarApi_v1_t* api_ = nullptr;
};

TEST_F(PluginApi, SaysWhatIsWrongWithACallAndWritesNothing) {
  EXPECT_EQ(api_->getTotals(nullptr), CLUSTAR_EINVAL);
  clustarTotals_v1 totals;
  std::memset(&totals, 0x5a, sizeof totals);
  totals.size = sizeof totals - 1;
  EXPECT_EQ(api_->getTotals(&totals), CLUSTAR_EINVAL);
  EXPECT_EQ(totals.sent_messages, 0x5a5a5a5a5a5a5a5aull);

  const char* name = nullptr;
  std::uint64_t messages = 0;
  EXPECT_EQ(api_->getReason(0, nullptr, &messages), CLUSTAR_EINVAL);
  EXPECT_EQ(api_->getReason(0, &name, nullptr), CLUSTAR_EINVAL);
  EXPECT_EQ(api_->getReason(std::numeric_limits<std::uint32_t>::max(), &name, &messages), CLUSTAR_ENOTFOUND);

  clustarCollective_v1 collective{};
  EXPECT_EQ(api_->getCollective(1, 4, 0, 0, &collective), CLUSTAR_EINVAL) << "its size is not set";
  collective.size = sizeof collective;
  EXPECT_EQ(api_->getCollective(1, 4, 2, 0, &collective), CLUSTAR_EINVAL) << "local_number is 0 or 1";
  EXPECT_EQ(api_->getCollective(1, 4, 0, 0, &collective), CLUSTAR_ENOTFOUND);
  EXPECT_EQ(api_->getCollective(1, 4, 0, 0, nullptr), CLUSTAR_EINVAL);

  std::size_t count = 7;
  EXPECT_EQ(api_->listCollectives(nullptr, 1, &count), CLUSTAR_EINVAL);
  EXPECT_EQ(api_->listCollectives(&collective, 1, nullptr), CLUSTAR_EINVAL);
  std::array<clustarCollective_v1, 2> two{{collective, {}}};
  EXPECT_EQ(api_->listCollectives(two.data(), two.size(), &count), CLUSTAR_EINVAL) << "the second has no size";
  EXPECT_EQ(count, 7u);
  EXPECT_EQ(api_->listCollectives(nullptr, 0, &count), CLUSTAR_OK);
  EXPECT_EQ(count, 0u);

  clustarMissing_v1 missing{};
  EXPECT_EQ(api_->listMissing(1, 4, 0, 0, &missing, 1, &count), CLUSTAR_EINVAL) << "its size is not set";
  missing.size = sizeof missing;
  EXPECT_EQ(api_->listMissing(1, 4, 0, 0, &missing, 1, nullptr), CLUSTAR_EINVAL);
  EXPECT_EQ(api_->listMissing(1, 4, 0, 0, nullptr, 1, &count), CLUSTAR_EINVAL);
  EXPECT_EQ(api_->listMissing(1, 4, 0, 0, &missing, 1, &count), CLUSTAR_ENOTFOUND);

  for (const auto lookup : {api_->listMissingFrom, api_->listLostTo}) {
    EXPECT_EQ(lookup(1, 0, 0, &missing, 1, nullptr), CLUSTAR_EINVAL);
    EXPECT_EQ(lookup(1, 0, 0, nullptr, 1, &count), CLUSTAR_EINVAL);
    EXPECT_EQ(lookup(1, 0, 0, &missing, 1, &count), CLUSTAR_ENOTFOUND);
    EXPECT_EQ(lookup(1, 0xffff, 0, &missing, 1, &count), CLUSTAR_ENOTFOUND) << "no rank";
    EXPECT_EQ(lookup(1, 0xffffffff, 0, nullptr, 0, &count), CLUSTAR_ENOTFOUND);
    EXPECT_EQ(count, 0u);
    clustarMissing_v1 sizeless{};
    EXPECT_EQ(lookup(1, 0, 0, &sizeless, 1, &count), CLUSTAR_EINVAL) << "its size is not set";
  }

  clustarMessage_v1 message{};
  message.size = sizeof message;
  const auto silent = [](void**, int, void*, std::int64_t, void*) { return 0; };
  int phandle = 0;
  EXPECT_EQ(api_->identify(nullptr, &phandle, &message), CLUSTAR_EINVAL);
  EXPECT_EQ(api_->identify(silent, &phandle, nullptr), CLUSTAR_EINVAL);
  EXPECT_EQ(api_->identify(silent, nullptr, &message), CLUSTAR_ENOTFOUND);
  EXPECT_EQ(api_->identify(silent, &phandle, &message), CLUSTAR_ENOTFOUND);
}

TEST_F(PluginApi, NamesEveryReasonOnce) {
  std::array<std::string, 64> names;
  std::uint32_t index = 0;
  const char* name = nullptr;
  std::uint64_t messages = 1;
  for (; api_->getReason(index, &name, &messages) == CLUSTAR_OK; ++index) {
    ASSERT_LT(index, names.size());
    names[index] = name;
    EXPECT_FALSE(names[index].empty());
    EXPECT_EQ(messages, 0u);
    for (std::uint32_t before = 0; before < index; ++before) EXPECT_NE(names[before], names[index]);
  }
  EXPECT_GT(index, 10u);
}

TEST_F(PluginApi, TakesANormOnlyIfItIsOne) {
  for (const double bad : {0.0, -1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    EXPECT_EQ(api_->reportGradientNorm(bad), CLUSTAR_EINVAL) << bad;
  }
  EXPECT_EQ(api_->reportGradientNorm(1.0), CLUSTAR_OK);
  EXPECT_EQ(api_->setCritical(2), CLUSTAR_EINVAL);
  EXPECT_EQ(api_->setCritical(-1), CLUSTAR_EINVAL);
  EXPECT_EQ(api_->setCritical(1), CLUSTAR_OK);
  EXPECT_EQ(api_->setCritical(0), CLUSTAR_OK);
}

TEST_F(PluginApi, TakesMarksOfMemoryWhileACommunicatorUsesIt) {
  const auto* api = static_cast<const clustarApi_v2_t*>(dlsym(library_, "clustarApi_v2"));
  ASSERT_NE(api, nullptr);
  ASSERT_EQ(api->size, sizeof *api);
  EXPECT_EQ(api->v1, api_);
  alignas(8) static std::array<std::byte, 10'000> memory;
  std::array<std::uint8_t, 3> important{1, 0, 1};
  clustarImportance_v1 marked{};
  marked.size = sizeof marked;
  EXPECT_EQ(api->markImportance(memory.data(), memory.size(), 4096, important.data(), 3), CLUSTAR_ENOTFOUND);
  EXPECT_EQ(api->forgetImportance(memory.data(), memory.size()), CLUSTAR_ENOTFOUND);
  EXPECT_EQ(api->getImportance(&marked), CLUSTAR_ENOTFOUND);

  const tests::Variables variables{{"CLUSTAR_TRANSPORT", "mlt"}};
  const tests::Environment environment(variables);
  const auto plugin = tests::open_plugin();
  void* context = nullptr;
  ASSERT_EQ(plugin->init(1, -1, &context), nccl_abi::kSuccess);
  EXPECT_EQ(api->markImportance(nullptr, memory.size(), 4096, important.data(), 3), CLUSTAR_EINVAL);
  EXPECT_EQ(api->markImportance(memory.data(), memory.size(), 4096, nullptr, 3), CLUSTAR_EINVAL);
  EXPECT_EQ(api->markImportance(memory.data(), 0, 4096, important.data(), 0), CLUSTAR_EINVAL);
  EXPECT_EQ(api->markImportance(memory.data(), memory.size(), 0, important.data(), 3), CLUSTAR_EINVAL);
  EXPECT_EQ(api->markImportance(memory.data(), memory.size(), 4096, important.data(), 2), CLUSTAR_EINVAL);
  EXPECT_EQ(api->markImportance(memory.data(), memory.size(), 4096, important.data(), 4), CLUSTAR_EINVAL);
  const std::size_t too_many = CLUSTAR_MOST_BLOCKS + 1;
  EXPECT_EQ(api->markImportance(memory.data(), too_many, 1, important.data(), too_many), CLUSTAR_EINVAL);
  const std::size_t huge = std::numeric_limits<std::size_t>::max() / 2 + 1;
  EXPECT_EQ(api->markImportance(reinterpret_cast<const void*>(huge), huge, huge, important.data(), 1), CLUSTAR_EINVAL);
  important[1] = 2;
  EXPECT_EQ(api->markImportance(memory.data(), memory.size(), 4096, important.data(), 3), CLUSTAR_EINVAL);
  important[1] = 0;
  EXPECT_EQ(api->getImportance(nullptr), CLUSTAR_EINVAL);
  EXPECT_EQ(api->getImportance(&marked), CLUSTAR_OK);
  EXPECT_EQ(marked.ranges, 0u) << "what was refused marks nothing";

  EXPECT_EQ(api->markImportance(memory.data(), memory.size(), 4096, important.data(), 3), CLUSTAR_OK);
  EXPECT_EQ(api->getImportance(&marked), CLUSTAR_OK);
  EXPECT_EQ(marked.ranges, 1u);
  EXPECT_EQ(marked.messages, 0u);
  EXPECT_EQ(api->forgetImportance(memory.data(), 0), CLUSTAR_EINVAL);
  EXPECT_EQ(api->forgetImportance(nullptr, 1), CLUSTAR_EINVAL);
  EXPECT_EQ(api->forgetImportance(memory.data() + memory.size() - 1, 1), CLUSTAR_OK);
  EXPECT_EQ(api->forgetImportance(nullptr, 0), CLUSTAR_ENOTFOUND);
  marked.size = 0;
  EXPECT_EQ(api->getImportance(&marked), CLUSTAR_EINVAL);
  EXPECT_EQ(plugin->finalize(context), nccl_abi::kSuccess);
}

}  // namespace
}  // namespace clustar
