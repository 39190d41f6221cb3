// What the collective network leaves behind in the process.
#include <dirent.h>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstddef>
#include <fstream>
#include <vector>

#include "tests/plugin/collnet/network.h"
#include "tests/plugin/plugin_under_test.h"
#include "tests/sanitized.h"

namespace clustar::tests {
namespace {

using namespace nccl_abi;

std::size_t entries(const char* folder) {
  std::size_t count = 0;
  DIR* dir = opendir(folder);
  while (readdir(dir) != nullptr) ++count;
  closedir(dir);
  return count;
}

std::size_t resident_kib() {
  std::ifstream in("/proc/self/statm");
  std::size_t total = 0, resident = 0;
  in >> total >> resident;
  return resident * static_cast<std::size_t>(sysconf(_SC_PAGESIZE)) / 1024;
}

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
}

TEST(CollNetReload, CyclesLeaveMemoryDescriptorsAndThreadsFlat) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer's own bookkeeping of loaded objects grows with every reload";
  const Environment environment(Variables{{"NCCL_COLLNET_ENABLE", "1"}});
  for (int i = 0; i < 40; ++i) cycle(i % 2 == 0 ? 12 : 8);
  const std::size_t memory = resident_kib(), descriptors = entries("/proc/self/fd"),
                    threads = entries("/proc/self/task");
  for (int i = 0; i < 100; ++i) cycle(i % 2 == 0 ? 12 : 8);
  EXPECT_EQ(entries("/proc/self/fd"), descriptors);
  EXPECT_EQ(entries("/proc/self/task"), threads);
  EXPECT_LT(resident_kib(), memory + 1024);
  EXPECT_EQ(dlopen(kPluginPath, RTLD_NOW | RTLD_NOLOAD), nullptr);
}

// NCCL does not always close what it connected; its dlclose comes all the same.
TEST(CollNetReload, ANetworkThatIsOpenHasNoThreadLeft) {
  if (kSanitized) GTEST_SKIP() << "sanitizers keep libraries loaded to symbolize reports";
  const Environment environment(Variables{{"NCCL_COLLNET_ENABLE", "1"}});
  const std::size_t threads = entries("/proc/self/task");
  std::vector<std::byte> data[2];
  {
    const auto net = CollNet::open(12);
    with_coll_ranks(*net, 2, [&](CollRank& me) {
      sum_once(me, data[me.rank]);
      me.registered.clear();
      me.comm = nullptr;
    });
    EXPECT_GT(entries("/proc/self/task"), threads);
  }
  EXPECT_EQ(entries("/proc/self/task"), threads);
  EXPECT_EQ(dlopen(kPluginPath, RTLD_NOW | RTLD_NOLOAD), nullptr);
}

}  // namespace
}  // namespace clustar::tests
