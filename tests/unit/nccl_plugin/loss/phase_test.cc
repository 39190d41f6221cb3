// The phase formula against ring collectives that are carried out here, primitive by primitive: what a transfer is, is
// seen from what it carries, and what its loss does, from the ranks' results.
#include "nccl_plugin/loss/phase.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstddef>
#include <vector>

#include "nccl_plugin/abi/types.h"

namespace clustar::nccl_plugin {
namespace {

using nccl_abi::kAllGather;
using nccl_abi::kAllReduce;
using nccl_abi::kBroadcast;
using nccl_abi::kReduceScatter;
using nccl_abi::kSendRecv;

// A chunk's value as the set of ranks whose input it holds, one bit each.
using Ranks = std::uint32_t;

struct Transfer {
  Ranks carries = 0;
  std::uint32_t loop = 0;
  std::uint32_t hop = 0;  // of its loop
  std::uint32_t slice = 0;
  std::size_t elements = 0;
};

// One loop of a ring of `ranks` ranks over one slice. Each rank adds its own input to what it received and sends the
// sum on (send, ranks - 2 times recvReduceSend); then, in an all-reduce, the sum is whole and is passed around
// (recvReduceCopySend, ranks - 2 times recvCopySend, recv). An all-gather starts with whole chunks.
class RingLoop {
 public:
  // `lost_hop` of rank `lost_rank` arrives as zeros; -1: nothing is lost.
  RingLoop(int function, std::uint32_t ranks, int lost_rank = -1, int lost_hop = -1)
      : function_(function), ranks_(ranks), results_(ranks, std::vector<Ranks>(ranks)) {
    const std::uint32_t sends = function == kAllReduce ? 2 * (ranks - 1) : ranks - 1;
    std::vector<Ranks> wire(ranks);  // by receiver
    for (std::uint32_t hop = 0; hop <= sends; ++hop) {
      std::vector<Ranks> next(ranks);
      for (std::uint32_t rank = 0; rank < ranks; ++rank) {
        const Ranks out = primitive(rank, hop, wire[rank]);
        const bool lost = static_cast<int>(rank) == lost_rank && static_cast<int>(hop) == lost_hop;
        next[(rank + 1) % ranks] = lost ? 0 : out;
        if (rank == 0 && hop < sends) sent_by_0_.push_back(out);
      }
      wire = next;
    }
  }

  const std::vector<Ranks>& sent_by_0() const { return sent_by_0_; }
  // By rank, then by chunk.
  const std::vector<std::vector<Ranks>>& results() const { return results_; }

 private:
  // What the rank sends, or would send, at this hop.
  Ranks primitive(std::uint32_t rank, std::uint32_t hop, Ranks received) {
    const std::uint32_t chunk = (rank + 2 * ranks_ - 1 - hop % ranks_) % ranks_;
    const Ranks own = 1u << rank;
    if (function_ == kAllGather) {
      // Chunks are whole when they start.
      return results_[rank][chunk] = hop == 0 ? own : received;
    }
    if (hop < ranks_ - 1) return received | own;
    if (hop == ranks_ - 1) return results_[rank][chunk] = received | own;
    return results_[rank][chunk] = received;
  }

  int function_;
  std::uint32_t ranks_;
  std::vector<std::vector<Ranks>> results_;
  std::vector<Ranks> sent_by_0_;
};

// What rank 0 sends of a channel's `elements`, in order. Sizes as NCCL cuts them: chunks of a short last loop are
// aligned to 16 elements, slices are half a chunk but not shorter than a 32nd of a full slice, so that the last one may
// be empty. An empty slice is a transfer like any other.
std::vector<Transfer> transfers_of(int function, std::uint32_t ranks, std::size_t elements, std::size_t full_chunk) {
  const std::vector<Ranks> sent = RingLoop(function, ranks).sent_by_0();
  std::vector<Transfer> all;
  for (std::uint32_t loop = 0; elements > 0; ++loop) {
    const std::size_t here = std::min(elements, full_chunk * ranks);
    const std::size_t even = ((here + ranks - 1) / ranks + 15) / 16 * 16;
    const std::size_t chunk_size = std::min(full_chunk, even);
    for (std::uint32_t hop = 0; hop < sent.size(); ++hop) {
      const std::size_t chunk = (2 * ranks - 1 - hop % ranks) % ranks;  // rank 0's
      std::size_t left = std::min(chunk_size, here - std::min(here, chunk * chunk_size));
      const std::size_t slice_size = std::max((left + 31) / 32 * 16, full_chunk / 2 / 32);
      for (std::uint32_t slice = 0; slice < 2; ++slice) {
        const std::size_t now = std::min(slice_size, left);
        all.push_back({sent[hop], loop, hop, slice, now});
        left -= now;
      }
    }
    elements -= here;
  }
  return all;
}

TEST(Phase, IsWhatTheTransferCarries) {
  constexpr std::size_t kFullChunk = 4096;
  std::size_t empty = 0;
  for (const int function : {kAllReduce, kReduceScatter, kAllGather}) {
    for (std::uint32_t n = 2; n <= 16; ++n) {
      const std::size_t loop = n * kFullChunk;
      // One element, short and full loops, several, and tails of every kind.
      for (const std::size_t elements : {std::size_t{1}, std::size_t{100}, loop / 2, loop, loop + 1, 3 * loop,
                                         3 * loop + 17, 4 * loop - 1, 5 * loop + loop / 3}) {
        const auto transfers = transfers_of(function, n, elements, kFullChunk);
        const auto count = static_cast<std::uint32_t>(transfers.size());
        for (std::uint32_t t = 0; t < count; ++t) {
          const Transfer& transfer = transfers[t];
          const bool whole = function == kAllGather || transfer.carries == (1u << n) - 1;
          const auto carried = static_cast<std::uint32_t>(std::popcount(transfer.carries));
          const Phase expected{.reducing = !whole,
                               .stage = whole ? transfer.hop % (n - 1) : carried - 1,
                               .loop = transfer.loop,
                               .slice = transfer.slice};
          ASSERT_EQ(phase_of(function, n, count, t), expected) << function << " n " << n << " t " << t;
          empty += transfer.elements == 0;
        }
      }
    }
  }
  EXPECT_GT(empty, 1000u);  // they were there, and counted
}

// The reason for the contract: what is lost while reducing is missing alike everywhere, what is lost afterwards is not.
TEST(Phase, ReplicasStayIdenticalExactlyWhereItReduces) {
  for (std::uint32_t n = 2; n <= 16; ++n) {
    const std::uint32_t sends = 2 * (n - 1);
    for (std::uint32_t hop = 0; hop < sends; ++hop) {
      const auto phase = phase_of(kAllReduce, n, sends * kRingSlices, hop * kRingSlices);
      ASSERT_TRUE(phase);
      for (std::uint32_t rank = 0; rank < n; ++rank) {
        const auto results = RingLoop(kAllReduce, n, static_cast<int>(rank), static_cast<int>(hop)).results();
        bool identical = true;
        std::uint32_t missing = 0;
        for (const auto& result : results) identical = identical && result == results[0];
        for (const Ranks chunk : results[0]) missing += n - static_cast<std::uint32_t>(std::popcount(chunk));
        ASSERT_EQ(identical, phase->reducing) << "n " << n << " hop " << hop << " rank " << rank;
        if (phase->reducing) {
          ASSERT_EQ(missing, phase->stage + 1);
        }
      }
    }
  }
}

TEST(Phase, NothingWithoutLossIsMissing) {
  for (std::uint32_t n = 2; n <= 16; ++n) {
    const RingLoop ring(kAllReduce, n);
    for (const auto& result : ring.results()) {
      for (const Ranks chunk : result) ASSERT_EQ(chunk, (1u << n) - 1);
    }
  }
}

TEST(Phase, DescribesNothingElse) {
  for (const int function :
       {-1, int{kBroadcast}, int{nccl_abi::kReduce}, int{kSendRecv}, int{nccl_abi::kGather}, 255}) {
    EXPECT_FALSE(phase_of(function, 2, 4, 0)) << function;
  }
  EXPECT_FALSE(phase_of(kAllReduce, 0, 4, 0));
  EXPECT_FALSE(phase_of(kAllReduce, 1, 4, 0));
  EXPECT_FALSE(phase_of(kAllReduce, 2, 0, 0));
  EXPECT_FALSE(phase_of(kAllReduce, 2, 4, 4));
  EXPECT_FALSE(phase_of(kAllReduce, 2, 4, ~0u));
  for (const std::uint32_t transfers : {1u, 6u, 11u, 13u, 18u}) {
    EXPECT_FALSE(phase_of(kAllReduce, 4, transfers, 0)) << transfers;  // a loop is 12
  }
  // No overflow: a loop of 2^32 - 1 ranks does not fit any count of transfers.
  EXPECT_FALSE(phase_of(kAllReduce, ~0u, ~0u, 0));
  EXPECT_FALSE(phase_of(kReduceScatter, 0x80000001u, 0xffffffffu, 0));
}

}  // namespace
}  // namespace clustar::nccl_plugin
