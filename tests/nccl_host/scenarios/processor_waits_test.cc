#include "tests/nccl_host/scenarios/processor_waits.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <chrono>
#include <filesystem>
#include <thread>

namespace nccl_host {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::milliseconds kTime{200};

// Two threads that share one processor: together they wait about as long as they run.
void SpinTwo() {
  cpu_set_t all;
  ASSERT_EQ(sched_getaffinity(0, sizeof(all), &all), 0);
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(static_cast<size_t>(sched_getcpu()), &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  const auto spin = [end = steady_clock::now() + kTime] {
    while (steady_clock::now() < end) continue;
  };
  std::jthread other(spin);
  std::jthread(spin).join();
  other.join();
  ASSERT_EQ(sched_setaffinity(0, sizeof(all), &all), 0);
}

TEST(ProcessorWaits, CountsThreadsThatShareAProcessorAlsoOnceTheyEnded) {
  if (!std::filesystem::exists("/proc/self/schedstat")) GTEST_SKIP() << "this kernel counts no waits";
  ProcessorWaits waits;
  const int64_t before = waits.Total();
  SpinTwo();
  EXPECT_GE(waits.Total() - before, kTime / std::chrono::nanoseconds(1) / 2);
}

TEST(ProcessorWaits, NeverGoesBack) {
  ProcessorWaits waits;
  int64_t last = waits.Total();
  for (int i = 0; i < 20; ++i) {
    std::jthread([] {}).join();
    const int64_t now = waits.Total();
    EXPECT_GE(now, last);
    last = now;
  }
}

}  // namespace
}  // namespace nccl_host
