// The data path of MLT's core allocates nothing once it is warm: operator new of this executable counts.
#include <execinfo.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <vector>

#include "bench/micro/mlt_pair.h"

namespace {

// One thread only.
bool counting = false;
std::uint64_t allocations = 0;

// Where they came from: the first few places, each with its callers.
struct Place {
  std::array<void*, 8> frames{};
  int depth = 0;
  std::uint64_t count = 0;
};
std::array<Place, 6> places;

#if CLUSTAR_COUNT_ALLOCATIONS
void note_place() {
  Place here;
  here.depth = backtrace(here.frames.data(), static_cast<int>(here.frames.size()));
  for (Place& place : places) {
    if (place.count > 0 && place.frames != here.frames) continue;
    here.count = place.count + 1;
    place = here;
    return;
  }
}

void* allocate(std::size_t size, std::size_t alignment) {
  if (counting) {
    counting = false;
    ++allocations;
    note_place();
    counting = true;
  }
  void* memory = alignment <= alignof(std::max_align_t)
                     ? std::malloc(size > 0 ? size : 1)
                     : std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
#endif

}  // namespace

#if CLUSTAR_COUNT_ALLOCATIONS
// The library's other forms (arrays, nothrow) end in these. Not inlined: half a pair in sight looks like a mismatch.
[[gnu::noinline]] void* operator new(std::size_t size) { return allocate(size, 1); }
[[gnu::noinline]] void* operator new(std::size_t size, std::align_val_t alignment) {
  return allocate(size, static_cast<std::size_t>(alignment));
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
#endif

namespace clustar::mlt {
namespace {

using bench::micro::MltPair;
using bench::micro::PairOptions;

constexpr std::uint32_t kMiB = 1 << 20;
constexpr std::uint64_t kMessages = 500;
constexpr std::uint32_t kRoughly = 11;  // packets, one of which is lost
// Tables of packets on their way, of messages and of timers double when more is under way than ever before, which a
// rare coincidence of losses brings about long after the beginning. One per packet or message would be far more than
// this.
constexpr std::uint64_t kGrowth = kMessages / 10;
constexpr const char* kWhyNot = "a sanitizer has operators of its own, which must not be mixed with others";

class Counting {
 public:
  Counting() {
    void* frame = nullptr;
    backtrace(&frame, 1);  // its first call loads a library
    allocations = 0;
    places = {};
    counting = true;
  }
  ~Counting() { counting = false; }
  Counting(const Counting&) = delete;
  Counting& operator=(const Counting&) = delete;
};

PairOptions options_of(std::uint16_t segment, std::uint32_t connections) {
  PairOptions options;
  options.core.segment = segment;
  options.connections = connections;
  options.message_bytes = kMiB;
  options.lose_every = 97;
  return options;
}

PairOptions tolerant(PairOptions options) {
  options.terms.tolerant = true;
  options.terms.communicator = 1;
  options.terms.ranks = options.terms.edges = 4;
  options.terms.collective_bytes = options.collective_bytes = 64 * kMiB;
  options.terms.identity.known = true;
  options.terms.tolerance_ppm = 20'000;
  return options;
}

void print_places() {
  for (const Place& place : places) {
    if (place.count == 0) return;
    std::fprintf(stderr, "%llu allocations:\n", static_cast<unsigned long long>(place.count));
    backtrace_symbols_fd(place.frames.data(), place.depth, STDERR_FILENO);
  }
}

// What kMessages messages allocate when as many came before them over a network that lost much more.
std::uint64_t allocations_once_warm(const PairOptions& options) {
  MltPair pair(options);
  if (options.lose_every > 0) pair.lose_every(kRoughly);
  EXPECT_TRUE(pair.run_messages(kMessages));
  pair.lose_every(options.lose_every);
  EXPECT_TRUE(pair.run_messages(kMessages));
  const MltPair::Counters before = pair.counters();
  {
    const Counting count;
    EXPECT_TRUE(pair.run_messages(kMessages));
  }
  EXPECT_EQ(pair.counters().lost > before.lost, options.lose_every > 0);
  EXPECT_EQ(pair.counters().missing > before.missing, options.lose_every > 0 && options.terms.tolerant);
  return allocations;
}

// Each of them is printed when it should not have been; addr2line names the lines.
void expect_at_most(std::uint64_t most, const PairOptions& options) {
  const std::uint64_t count = allocations_once_warm(options);
  EXPECT_LE(count, most) << "of " << options.connections << " connections in segments of " << options.core.segment;
  if (count > most) print_places();
}

TEST(MltAlloc, TheCounterCounts) {
  if (CLUSTAR_COUNT_ALLOCATIONS == 0) GTEST_SKIP() << kWhyNot;
  const Counting count;
  std::vector<int> vector(10);
  vector.data()[0] = 1;
  EXPECT_EQ(allocations, 1u);
}

TEST(MltAlloc, OneConnectionAllocatesNothingWhileNothingIsLost) {
  if (CLUSTAR_COUNT_ALLOCATIONS == 0) GTEST_SKIP() << kWhyNot;
  for (const std::uint16_t segment : {1408, 8900}) {
    PairOptions options = options_of(segment, 1);
    options.lose_every = 0;
    expect_at_most(0, options);
    expect_at_most(0, tolerant(options));
  }
}

TEST(MltAlloc, LossAndManyConnectionsAllocateNothingButGrowthOfTables) {
  if (CLUSTAR_COUNT_ALLOCATIONS == 0) GTEST_SKIP() << kWhyNot;
  for (const std::uint16_t segment : {1408, 8900}) {
    for (const std::uint32_t connections : {1, 16}) {
      expect_at_most(kGrowth, options_of(segment, connections));
      expect_at_most(kGrowth, tolerant(options_of(segment, connections)));
    }
  }
}

TEST(MltAlloc, AMapOfImportantPacketsIsCopiedIntoStorageThatIsThere) {
  if (CLUSTAR_COUNT_ALLOCATIONS == 0) GTEST_SKIP() << kWhyNot;
  PairOptions options = tolerant(options_of(1408, 1));
  PacketBitmap important;
  ASSERT_TRUE(important.reset(packet_count(options.message_bytes, options.core.segment)));
  for (std::uint32_t i = 0; i < important.size(); i += 20) important.set(i);
  options.terms.important = &important;
  expect_at_most(kGrowth, options);
}

}  // namespace
}  // namespace clustar::mlt
