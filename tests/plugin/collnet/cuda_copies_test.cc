// The collective network over libclustar-cuda.so and a driver that fails, stands still and counts (tests/gdr).
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstddef>
#include <thread>
#include <vector>

#include "tests/gdr/fake_libcuda/fake_cuda.h"
#include "tests/plugin/collnet/network.h"

namespace clustar::tests {
namespace {

using namespace nccl_abi;
using ::testing::HasSubstr;

constexpr std::size_t kCount = 1000, kBytes = kCount * 4;

class CollNetCuda : public ::testing::Test {
 protected:
  void SetUp() override {
    // Before the module, whose own need of a libcuda.so.1 is met by it then.
    void* const library = dlopen(CLUSTAR_FAKE_LIBCUDA, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library, nullptr) << dlerror();
    driver_ = static_cast<const FakeCuda*>(dlsym(library, kFakeCudaSymbol));
    ASSERT_NE(driver_, nullptr) << "this libcuda.so.1 is not the fake one";
    ASSERT_EQ(driver_->load(std::string(CLUSTAR_CUDA_DRIVERS) + "/open-modules.txt"), "");
    before_ = live();
  }
  void TearDown() override {
    if (driver_ != nullptr) {
      EXPECT_EQ(driver_->misuse(), "");
    }
  }
  // Copies of a GPU that died or stands still leave what they may still use (gdr/cuda), so each test has its own count.
  std::vector<std::size_t> live() const {
    std::vector<std::size_t> counts;
    for (const char* what : {"contexts", "streams", "events", "pinned", "device"})
      counts.push_back(driver_->live(what));
    return counts;
  }
  std::byte* gpu_memory(CollRank& me) const {
    std::byte* const memory = driver_->allocate(kBytes);
    std::ranges::copy(values(kFloat32, me.rank, 0, kCount), memory);
    return memory;
  }
  static int start(CollRank& me, std::byte* memory, void* mr, void** request) {
    return me.net.all_reduce(me.comm, memory, memory, kCount, kFloat32, kSum, mr, mr, request);
  }

  const FakeCuda* driver_ = nullptr;
  std::vector<std::size_t> before_;
  const Environment environment_{Variables{{"NCCL_COLLNET_ENABLE", "1"}, {"CLUSTAR_GDR", "staged"}}};
};

TEST_F(CollNetCuda, SumsUpAndLeavesNothing) {
  const auto net = CollNet::open(12);
  with_coll_ranks(*net, 3, [&](CollRank& me) {
    std::byte* const memory = gpu_memory(me);
    void* const mr = me.reg(memory, kBytes, kPtrCuda);
    void* request = nullptr;
    ASSERT_EQ(start(me, memory, mr, &request), kSuccess);
    ASSERT_EQ(me.wait(request), kSuccess) << collnet_log();
    EXPECT_TRUE(std::ranges::equal(reduced(kFloat32, kSum, 3, 0, kCount), std::span(memory, kBytes)));
  });
  EXPECT_EQ(live(), before_);
}

// What the driver says of one rank's copy is what NCCL reads on it, and the others end, too.
TEST_F(CollNetCuda, ACopyThatFailsIsNamedAndEndsAllRanks) {
  const auto net = CollNet::open(12);
  std::atomic<int> failed{0};
  const auto begin = std::chrono::steady_clock::now();
  with_coll_ranks(*net, 3, [&](CollRank& me) {
    const bool gpu = me.rank == 2;
    std::vector<std::byte> host = values(kFloat32, me.rank, 0, kCount);
    std::byte* const memory = gpu ? gpu_memory(me) : host.data();
    void* const mr = me.reg(memory, kBytes, gpu ? kPtrCuda : kPtrHost);
    void* request = nullptr;
    if (gpu) driver_->copies_fail("CUDA_ERROR_ILLEGAL_ADDRESS");
    ASSERT_EQ(start(me, memory, mr, &request), kSuccess);
    if (me.wait(request) != kSuccess) ++failed;
    // Nothing starts any more, and nothing hangs.
    ASSERT_EQ(start(me, memory, mr, &request), kSuccess);
    EXPECT_NE(me.wait(request), kSuccess);
    me.dereg_all();
  });
  EXPECT_EQ(failed, 3);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
  const std::string log = collnet_log();
  EXPECT_THAT(log, HasSubstr("CollNet: cuEventQuery after a copy: CUDA_ERROR_ILLEGAL_ADDRESS"));
  EXPECT_THAT(log, HasSubstr("CollNet: rank 2: cuEventQuery after a copy")) << "the others know it from rank 2";
}

TEST_F(CollNetCuda, MemoryThatCannotBePinnedIsAnErrorOfTheRegistrationAlone) {
  const auto net = CollNet::open(12);
  with_coll_ranks(*net, 2, [&](CollRank& me) {
    std::byte* const memory = gpu_memory(me);
    std::vector<std::byte> host = values(kFloat32, me.rank, 0, kCount);
    if (me.rank == 0) {
      driver_->answer("cuMemHostAlloc", "CUDA_SUCCESS CUDA_ERROR_OUT_OF_MEMORY CUDA_SUCCESS");
      void* mr = &mr;
      EXPECT_NE(me.net.reg_mr(me.comm, memory, kBytes, kPtrCuda, &mr), kSuccess);
      EXPECT_EQ(mr, nullptr);
      EXPECT_NE(me.net.reg_mr(me.comm, host.data(), kBytes, kPtrCuda, &mr), kSuccess) << "host memory is no GPU's";
    }
    void* const mr = me.reg(host.data(), kBytes);
    void* request = nullptr;
    ASSERT_EQ(start(me, host.data(), mr, &request), kSuccess);
    ASSERT_EQ(me.wait(request), kSuccess);
    EXPECT_EQ(host, reduced(kFloat32, kSum, 2, 0, kCount));
    me.dereg_all();
  });
  const std::string log = collnet_log();
  EXPECT_THAT(log, HasSubstr("copies of GPU memory: "));
  EXPECT_THAT(log, HasSubstr("CUDA_ERROR_OUT_OF_MEMORY"));
  EXPECT_EQ(live(), before_);
}

// A GPU that stands still: the abort waits for it a second, and no longer.
TEST_F(CollNetCuda, AnAbortWhileTheGpuStandsStillEnds) {
  const auto net = CollNet::open(12);
  std::barrier registered(2);  // which asks the GPU, too
  std::barrier looked(2);
  with_coll_ranks(*net, 2, [&](CollRank& me) {
    std::byte* const memory = gpu_memory(me);
    void* const mr = me.reg(memory, kBytes, kPtrCuda);
    void* request = nullptr;
    registered.arrive_and_wait();
    if (me.rank == 0) driver_->hold(true);
    EXPECT_EQ(start(me, memory, mr, &request), kSuccess);
    int done = 0, size = 0;
    for (int i = 0; i < 20; ++i) EXPECT_EQ(me.net.test(request, &done, &size), kSuccess);
    EXPECT_EQ(done, 0);
    // An abort reaches the other, too.
    looked.arrive_and_wait();
    const auto begin = std::chrono::steady_clock::now();
    me.dereg_all();
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
    EXPECT_NE(me.wait(request), kSuccess);
  });
  driver_->hold(false);
}

}  // namespace
}  // namespace clustar::tests
