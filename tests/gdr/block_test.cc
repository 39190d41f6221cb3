// The fibers on which kernels run: what is wrong with a kernel is found.
#include "tests/gdr/emulated_device/block.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "tests/gdr/emulated_device/planted.h"

namespace clustar::emulated {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr unsigned kThreads = 64;

std::string launch(const std::string& name, std::vector<float>& values, unsigned count, std::uint64_t order = 0) {
  const KernelEntry* kernel = find_kernel(name);
  if (kernel == nullptr) return "no kernel " + name;
  const PlantedArguments argument{values.data(), count};
  return run(*kernel, Dim3{2}, Dim3{kThreads}, &argument, order);
}

std::vector<float> numbers() {
  std::vector<float> values(kThreads);
  for (unsigned i = 0; i < kThreads; ++i) values[i] = static_cast<float>(i);
  return values;
}

std::size_t results(const std::string& kernel) {
  std::set<std::vector<float>> all;
  for (std::uint64_t order = 0; order < 8; ++order) {
    std::vector<float> values = numbers();
    EXPECT_EQ(launch(kernel, values, 0, order), "");
    all.insert(values);
  }
  return all.size();
}

TEST(EmulatedBlock, AMissingBarrierShowsByTheOrderOfThreads) {
  EXPECT_EQ(results("planted_none"), 1u);
  EXPECT_GT(results("planted_race"), 1u);
}

TEST(EmulatedBlock, ABarrierThatSomeThreadsPassIsFound) {
  for (std::uint64_t order = 0; order < 4; ++order) {
    std::vector<float> values = numbers();
    EXPECT_THAT(
        launch("planted_barrier_of_some", values, 40, order),
        AllOf(HasSubstr("planted_barrier_of_some, block (0, 0, 0): divergent barrier: thread (0, 0, 0) is at the "
                        "barrier "),
              HasSubstr("planted.cc:"), HasSubstr("has ended")));
  }
}

TEST(EmulatedBlock, TwoBarriersAreNotOne) {
  std::vector<float> values = numbers();
  EXPECT_THAT(launch("planted_two_barriers", values, 40), HasSubstr("thread (40, 0, 0) is at the barrier"));
  EXPECT_EQ(launch("planted_two_barriers", values, kThreads), "");
}

TEST(EmulatedBlock, AShuffleWithoutAllOfItsLanesIsFound) {
  std::vector<float> values = numbers();
  EXPECT_THAT(launch("planted_shuffle_of_some", values, 40), HasSubstr("is at the shuffle"));
  values = numbers();
  EXPECT_EQ(launch("planted_shuffle_of_some", values, kThreads), "");
  EXPECT_EQ(values, numbers()) << "two blocks swap neighbours twice";
}

TEST(EmulatedBlock, AnAccessBeyondTheEndIsFoundByAddressSanitizer) {
  if (!finds_bad_accesses()) GTEST_SKIP() << "this build has no AddressSanitizer; the asan preset runs it";
  std::vector<float> values = numbers();
  EXPECT_DEATH(launch("planted_beyond_the_end", values, 0), "heap-buffer-overflow");
}

TEST(EmulatedBlock, TooManyThreadsAreRefused) {
  const KernelEntry* kernel = find_kernel("planted_none");
  ASSERT_NE(kernel, nullptr);
  const PlantedArguments none;
  EXPECT_THAT(run(*kernel, Dim3{1}, Dim3{1025}, &none), HasSubstr("1 to 1024 threads"));
}

}  // namespace
}  // namespace clustar::emulated
