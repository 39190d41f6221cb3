// About which sends the plugin asks NCCL's callback, and about which it must not: NCCL 2.27 reads through a pointer
// there that is null unless a profiler kept the operation.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <vector>

#include "nccl_plugin/abi/profiler.h"
#include "nccl_plugin/abi/tables.h"
#include "tests/plugin/plugin_under_test.h"

namespace clustar::tests {
namespace {

int g_asked = 0;

int count_questions(void**, int type, void*, std::int64_t, void*) {
  g_asked += type == nccl_abi::kProfilerStart ? 1 : 0;
  return nccl_abi::kSuccess;
}

void no_log(int, unsigned long, const char*, int, const char*, ...) {}

TEST(PluginPhandle, VersionTenAsksOnlyAboutWhatAProfilerKept) {
  const Environment environment(Variables{});
  void* const library = dlopen(kPluginPath, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  const auto& net = *static_cast<const nccl_abi::TableV10*>(dlsym(library, "ncclNetPlugin_v10"));
  ASSERT_EQ(net.init(no_log, count_questions), nccl_abi::kSuccess);
  std::array<char, 128> handle{};
  void *listen = nullptr, *send = nullptr, *recv = nullptr, *out = nullptr;
  ASSERT_EQ(net.listen(0, handle.data(), &listen), nccl_abi::kSuccess);
  ASSERT_TRUE(poll_until([&] {
    if (send == nullptr && net.connect(0, nullptr, handle.data(), &send, nullptr) != nccl_abi::kSuccess) return true;
    if (recv == nullptr && net.accept(listen, &recv, nullptr) != nccl_abi::kSuccess) return true;
    return send != nullptr && recv != nullptr;
  }));
  ASSERT_TRUE(send != nullptr && recv != nullptr);
  std::vector<char> memory(64);
  ASSERT_EQ(net.regMr(send, memory.data(), memory.size(), nccl_abi::kPtrHost, &out), nccl_abi::kSuccess);
  int kept = 0;
  std::array<void*, 2> unkept_phandle{&kept, nullptr}, kept_phandle{&kept, &kept};
  const auto questions = [&](void* phandle) {
    g_asked = 0;
    void* request = nullptr;
    EXPECT_EQ(net.isend(send, memory.data(), memory.size(), 0, out, phandle, &request), nccl_abi::kSuccess);
    EXPECT_NE(request, nullptr);
    int done = 0;
    EXPECT_TRUE(poll_until([&] { return net.test(request, &done, nullptr) != nccl_abi::kSuccess || done != 0; }));
    return g_asked;
  };
  EXPECT_EQ(questions(nullptr), 0);
  EXPECT_EQ(questions(unkept_phandle.data()), 0);
  EXPECT_EQ(questions(kept_phandle.data()), 1);
  EXPECT_EQ(net.deregMr(send, out), nccl_abi::kSuccess);
  EXPECT_EQ(net.closeSend(send), nccl_abi::kSuccess);
  EXPECT_EQ(net.closeRecv(recv), nccl_abi::kSuccess);
  EXPECT_EQ(net.closeListen(listen), nccl_abi::kSuccess);
  dlclose(library);
}

}  // namespace
}  // namespace clustar::tests
