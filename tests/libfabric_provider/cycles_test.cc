// A thousand times: fabric, domain, endpoint, connect, send, close. Memory, descriptors and threads stay as they were.
#include <gtest/gtest.h>
#include <malloc.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/libfabric_provider/program.h"
#include "tests/sanitized.h"

namespace clustar::libfabric_shim::provider {
namespace {

constexpr int kCycles = tests::kSanitized ? 100 : 1000;
constexpr int kWarmUp = kCycles / 10;  // for what is made once, as caches of the C library

struct Use {
  std::size_t descriptors = 0;
  std::size_t threads = 0;
  std::size_t heap = 0;      // bytes that are in use; 0 under a sanitizer, which has a heap of its own
  std::size_t resident = 0;  // KiB
};

std::size_t entries_of(const char* folder) {
  const auto all = std::filesystem::directory_iterator(folder);
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

Use use_now() {
  Use use{entries_of("/proc/self/fd"), entries_of("/proc/self/task"), 0, 0};
  if (!tests::kSanitized) use.heap = mallinfo2().uordblks + mallinfo2().hblkhd;
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word == "VmRSS:") status >> use.resident;
  }
  return use;
}

// False: not both messages came within 20 s.
bool cycle(std::vector<char>& out, std::vector<char>& in) {
  Program from(false);
  Program to(false);
  const fi_addr_t peer = from.know(to.address());
  std::size_t came = 0, sent = 0;
  for (const std::size_t bytes : {std::size_t{64}, out.size()}) {
    if (fi_trecv(to.endpoint(), in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, kTag, 0, &in) != 0) return false;
    if (fi_tsend(from.endpoint(), out.data(), bytes, nullptr, peer, kTag, &out) != 0) return false;
  }
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while ((came < 2 || sent < 2) && std::chrono::steady_clock::now() < end) {
    fi_cq_tagged_entry entry{};
    if (fi_cq_read(to.receives(), &entry, 1) == 1) ++came;
    if (fi_cq_read(from.sends(), &entry, 1) == 1) ++sent;
  }
  return came == 2 && sent == 2;
}

class Cycles : public ::testing::TestWithParam<const char*> {};

TEST_P(Cycles, OpeningAndClosingLeavesNothing) {
  setenv("FI_CLUSTAR_TRANSPORT", GetParam(), 1);
  std::vector<char> out(32768, 1), in(32768);  // the longer of two messages goes by rendezvous
  Use before;
  for (int i = 0; i < kCycles; ++i) {
    if (i == kWarmUp) before = use_now();
    ASSERT_TRUE(cycle(out, in)) << i;
  }
  const Use after = use_now();
  std::printf(
      "%s, cycles %d to %d: descriptors %zu to %zu, threads %zu to %zu, heap %zu to %zu B, resident %zu to %zu KiB\n",
      GetParam(), kWarmUp, kCycles, before.descriptors, after.descriptors, before.threads, after.threads, before.heap,
      after.heap, before.resident, after.resident);
  EXPECT_EQ(after.descriptors, before.descriptors);
  EXPECT_EQ(after.threads, before.threads);
  // Less than 64 B a cycle, so no object of ours.
  EXPECT_LT(after.heap, before.heap + 64 * kCycles);
  if (!tests::kSanitized) {
    EXPECT_LT(after.resident, before.resident + 4096);
  }
}

INSTANTIATE_TEST_SUITE_P(Over, Cycles, ::testing::Values("tcp", "mlt"), [](const auto& over) { return over.param; });

}  // namespace
}  // namespace clustar::libfabric_shim::provider
