// What the collective network leaves behind in the process.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

#include "tests/own_process.h"
#include "tests/plugin/collnet/network.h"
#include "tests/sanitized.h"

namespace clustar::tests {
namespace {

using namespace nccl_abi;

void sum_once(CollRank& me, std::vector<std::byte>& data) {
  data = values(kFloat32, me.rank, 0, 1000);
  void* const mr = me.reg(data.data(), data.size());
  void* request = nullptr;
  ASSERT_EQ(me.net.all_reduce(me.comm, data.data(), data.data(), 1000, kFloat32, kSum, mr, mr, &request), kSuccess);
  ASSERT_EQ(me.wait(request), kSuccess);
  ASSERT_EQ(data, reduced(kFloat32, kSum, me.ranks, 0, 1000));
}

void cycle(int version) {
  const auto net = CollNet::open(version);
  with_coll_ranks(*net, 2, [](CollRank& me) {
    std::vector<std::byte> data;
    sum_once(me, data);
    me.dereg_all();
  });
  (void)collnet_log();  // kilobytes a cycle, of the test's own
}

TEST(CollNetReload, CyclesLeaveMemoryDescriptorsAndThreadsFlat) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer's own bookkeeping of loaded objects grows with every reload";
  const Environment environment(Variables{{"NCCL_COLLNET_ENABLE", "1"}});
  for (int i = 0; i < 40; ++i) cycle(i % 2 == 0 ? 12 : 8);
  const std::size_t memory = resident_kib(), descriptors = open_descriptors(), threads = running_threads();
  for (int i = 0; i < 100; ++i) cycle(i % 2 == 0 ? 12 : 8);
  EXPECT_EQ(open_descriptors(), descriptors);
  EXPECT_LE(threads_left(threads), threads);
  EXPECT_LT(resident_kib(), memory + 1024);
  EXPECT_EQ(dlopen(kPluginPath, RTLD_NOW | RTLD_NOLOAD), nullptr);
}

// NCCL does not always close what it connected; its dlclose comes all the same.
TEST(CollNetReload, ANetworkThatIsOpenHasNoThreadLeft) {
  if (kSanitized) GTEST_SKIP() << "sanitizers keep libraries loaded to symbolize reports";
  const Environment environment(Variables{{"NCCL_COLLNET_ENABLE", "1"}});
  const std::size_t threads = running_threads();
  std::vector<std::byte> data[2];
  {
    const auto net = CollNet::open(12);
    with_coll_ranks(*net, 2, [&](CollRank& me) {
      sum_once(me, data[me.rank]);
      me.registered.clear();
      me.comm = nullptr;
    });
    EXPECT_GT(running_threads(), threads);
  }
  EXPECT_LE(threads_left(threads), threads);
  EXPECT_EQ(dlopen(kPluginPath, RTLD_NOW | RTLD_NOLOAD), nullptr);
}

}  // namespace
}  // namespace clustar::tests
