// The arithmetic of direct all-reduces, without any network.
#include "bench/proxy/direct_blocks.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <map>
#include <set>
#include <vector>

#include "tests/half_reference.h"

namespace clustar::bench::proxy {
namespace {

TEST(DirectBlocks, CoverEverythingOnceAndStartAligned) {
  for (const int size : {2, 3, 4, 5, 8, 17}) {
    for (const std::size_t count : {0u, 1u, 3u, 4u, 5u, 16u, 17u, 1000u, 65'537u}) {
      for (const std::size_t element : {4u, 8u}) {
        std::size_t end = 0;
        for (int rank = 0; rank < size; ++rank) {
          const Block block = direct_block(rank, size, count, element);
          EXPECT_EQ(block.begin, end);
          if (block.count > 0) {
            EXPECT_EQ(block.begin * element % 16, 0u);
          }
          EXPECT_LE(block.count, block_share(size, count, element));
          end = block.begin + block.count;
        }
        EXPECT_EQ(end, count) << size << " ranks";
      }
    }
  }
}

TEST(DirectBlocks, ChunksAreThoseOfNccl) {
  EXPECT_EQ(p2p_chunk_bytes(1), 32u * 1024);
  EXPECT_EQ(p2p_chunk_bytes(128 * 1024 - 1), 32u * 1024);
  EXPECT_EQ(p2p_chunk_bytes(128 * 1024), 64u * 1024);
  EXPECT_EQ(p2p_chunk_bytes(1024 * 1024 - 1), 64u * 1024);
  EXPECT_EQ(p2p_chunk_bytes(1024 * 1024), 128u * 1024);
}

TEST(DirectBlocks, EveryRoundPairsSendersWithReceivers) {
  for (int size = 2; size <= 20; ++size) {
    std::vector<std::vector<P2pRound>> schedules;
    for (int rank = 0; rank < size; ++rank) schedules.push_back(p2p_schedule(rank, size));
    for (int rank = 0; rank < size; ++rank) {
      const auto& mine = schedules[static_cast<std::size_t>(rank)];
      ASSERT_EQ(mine.size(), static_cast<std::size_t>(size - 1));
      std::set<int> to;
      for (std::size_t round = 0; round < mine.size(); ++round) {
        EXPECT_NE(mine[round].send_peer, rank);
        to.insert(mine[round].send_peer);
        EXPECT_EQ(schedules[static_cast<std::size_t>(mine[round].send_peer)][round].recv_peer, rank);
      }
      EXPECT_EQ(to.size(), mine.size());
    }
  }
  // The example of NCCL's source: 0, 1, 3, 6, 10, 15, 5, ...
  std::vector<int> first;
  for (const P2pRound& round : p2p_schedule(0, 16)) first.push_back(round.send_peer);
  EXPECT_EQ(first, (std::vector<int>{1, 3, 6, 10, 15, 5, 12, 4, 13, 7, 2, 14, 11, 9, 8}));
}

TEST(DirectBlocks, LostBytesWidenToWholeElementsOfTheBlock) {
  using Ranges = std::vector<ElementRange>;
  const auto elements = [](std::vector<LostBytes> lost) { return lost_elements(lost, 100, 250, 4); };
  EXPECT_EQ(elements({}), Ranges{});
  EXPECT_EQ(elements({{0, 4, 4}}), (Ranges{{1, 2}}));
  EXPECT_EQ(elements({{0, 3, 2}}), (Ranges{{0, 2}}));
  EXPECT_EQ(elements({{2, 40, 10}}), (Ranges{{60, 63}}));   // to the end, which is no multiple
  EXPECT_EQ(elements({{1, 96, 400}}), (Ranges{{49, 50}}));  // not beyond its transfer
  EXPECT_EQ(elements({{1, 0, 8}, {0, 96, 4}, {0, 0, 1}}), (Ranges{{0, 1}, {24, 27}}));  // in any order, joined
  EXPECT_EQ(elements({{3, 0, 4}, {0, 100, 4}, {0, 8, 0}}), Ranges{});
  constexpr auto kHuge = std::numeric_limits<std::uint64_t>::max();
  EXPECT_EQ(elements({{kHuge, 0, 4}, {0, kHuge, 4}, {0, 92, kHuge}}), (Ranges{{23, 25}}));
}

TEST(DirectBlocks, RescaleTouchesWhatIsMissingOnly) {
  std::vector<float> sums{1, 2, 3, 4, 5, 6};
  const std::vector<std::vector<ElementRange>> missing{{{1, 3}}, {}, {{2, 5}}, {}};
  rescale(reinterpret_cast<std::byte*>(sums.data()), DataType::kFloat32, 4, missing);
  EXPECT_EQ(sums, (std::vector<float>{1, 2 * 4.0f / 3, 3 * 4.0f / 2, static_cast<float>(4 * 4.0 / 3),
                                      static_cast<float>(5 * 4.0 / 3), 6}));
  std::vector<double> pair{7, 8};
  const std::vector<std::vector<ElementRange>> all{{{0, 1}}, {{0, 1}}};
  rescale(reinterpret_cast<std::byte*>(pair.data()), DataType::kFloat64, 2, all);
  EXPECT_EQ(pair, (std::vector<double>{0, 8}));
  // Whole numbers and their thirds, which a 16-bit type rounds.
  std::vector<clustar::tests::Float16> halves{clustar::tests::Float16(5), clustar::tests::Float16(6),
                                              clustar::tests::Float16(7)};
  const std::vector<std::vector<ElementRange>> of_one{{{1, 3}}, {}, {}, {}};
  rescale(reinterpret_cast<std::byte*>(halves.data()), DataType::kFloat16, 4, of_one);
  EXPECT_EQ(halves[0].bits, clustar::tests::Float16(5).bits);
  EXPECT_EQ(halves[1].bits, clustar::tests::Float16(8).bits);
  EXPECT_EQ(halves[2].bits, clustar::tests::Float16(28.0 / 3).bits);
}

TEST(DirectBlocks, ZeroesTheRangesOrAllElse) {
  const std::vector<ElementRange> ranges{{0, 1}, {3, 4}};
  std::vector<float> a{1, 2, 3, 4, 5};
  zero_elements(reinterpret_cast<std::byte*>(a.data()), ranges, sizeof(float));
  EXPECT_EQ(a, (std::vector<float>{0, 2, 3, 0, 5}));
  std::vector<float> b{1, 2, 3, 4, 5};
  zero_all_but(reinterpret_cast<std::byte*>(b.data()), ranges, b.size(), sizeof(float));
  EXPECT_EQ(b, (std::vector<float>{1, 0, 0, 4, 0}));
  EXPECT_EQ(count_of(ranges), 2u);
}

}  // namespace
}  // namespace clustar::bench::proxy
