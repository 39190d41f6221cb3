// The data path of MLT's core allocates nothing once it is warm: operator new of this executable counts.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "bench/micro/mlt_pair.h"
#include "tests/unit/count_allocations.h"

namespace clustar::mlt {
namespace {

using bench::micro::MltPair;
using bench::micro::PairOptions;
using tests::counted_allocations;
using tests::Counting;
using tests::kWhyNotCounted;
using tests::print_allocations;

constexpr std::uint32_t kMiB = 1 << 20;
constexpr std::uint64_t kMessages = 500;
constexpr std::uint32_t kRoughly = 11;  // packets, one of which is lost
// Tables of packets on their way, of messages and of timers double when more is under way than ever before, which a
// rare coincidence of losses brings about long after the beginning. One per packet or message would be far more than
// this.
constexpr std::uint64_t kGrowth = kMessages / 10;

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

// What kMessages messages allocate when as many came before them over a network that lost much more, and enough of
// their kind that chance has brought as many packets on one path as it ever will.
std::uint64_t allocations_once_warm(const PairOptions& options) {
  MltPair pair(options);
  if (options.lose_every > 0) pair.lose_every(kRoughly);
  EXPECT_TRUE(pair.run_messages(kMessages));
  pair.lose_every(options.lose_every);
  EXPECT_TRUE(pair.run_messages(4 * kMessages));
  const MltPair::Counters before = pair.counters();
  {
    const Counting count;
    EXPECT_TRUE(pair.run_messages(kMessages));
  }
  EXPECT_EQ(pair.counters().lost > before.lost, options.lose_every > 0);
  EXPECT_EQ(pair.counters().missing > before.missing, options.lose_every > 0 && options.terms.tolerant);
  return counted_allocations();
}

// Each of them is printed when it should not have been; addr2line names the lines.
void expect_at_most(std::uint64_t most, const PairOptions& options) {
  const std::uint64_t count = allocations_once_warm(options);
  EXPECT_LE(count, most) << "of " << options.connections << " connections in segments of " << options.core.segment;
  if (count > most) print_allocations();
}

TEST(MltAlloc, TheCounterCounts) {
  if (CLUSTAR_COUNT_ALLOCATIONS == 0) GTEST_SKIP() << kWhyNotCounted;
  const Counting count;
  std::vector<int> vector(10);
  vector.data()[0] = 1;
  EXPECT_EQ(counted_allocations(), 1u);
}

TEST(MltAlloc, OneConnectionAllocatesNothingWhileNothingIsLost) {
  if (CLUSTAR_COUNT_ALLOCATIONS == 0) GTEST_SKIP() << kWhyNotCounted;
  for (const std::uint16_t segment : {1408, 8900}) {
    PairOptions options = options_of(segment, 1);
    options.lose_every = 0;
    expect_at_most(0, options);
    expect_at_most(0, tolerant(options));
  }
}

TEST(MltAlloc, LossAndManyConnectionsAllocateNothingButGrowthOfTables) {
  if (CLUSTAR_COUNT_ALLOCATIONS == 0) GTEST_SKIP() << kWhyNotCounted;
  for (const std::uint16_t segment : {1408, 8900}) {
    for (const std::uint32_t connections : {1, 16}) {
      expect_at_most(kGrowth, options_of(segment, connections));
      expect_at_most(kGrowth, tolerant(options_of(segment, connections)));
    }
  }
}

TEST(MltAlloc, AMapOfImportantPacketsIsCopiedIntoStorageThatIsThere) {
  if (CLUSTAR_COUNT_ALLOCATIONS == 0) GTEST_SKIP() << kWhyNotCounted;
  PairOptions options = tolerant(options_of(1408, 1));
  PacketBitmap important;
  ASSERT_TRUE(important.reset(packet_count(options.message_bytes, options.core.segment)));
  for (std::uint32_t i = 0; i < important.size(); i += 20) important.set(i);
  options.terms.important = &important;
  expect_at_most(kGrowth, options);
}

}  // namespace
}  // namespace clustar::mlt
