// The arithmetic of a direct all-reduce: who sends which block to whom in which transfers, and what becomes of elements
// of which not all contributions came. Pure: no network, no plugin.
// Sources: NCCL 2.28.9 src/enqueue.cc addP2pToPlan (chunks), src/init.cc ncclP2pSchedule (rounds).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "bench/proxy/communicator.h"
#include "bench/proxy/loss_reports.h"

namespace clustar::bench::proxy {

inline constexpr std::size_t kP2pStepBytes = 128 * 1024;  // NCCL_P2P_NET_CHUNKSIZE

// The block that a rank adds up, in elements. All but the last ones with any are equally long and start at multiples of
// 16 bytes; the last ones may be shorter or empty.
struct Block {
  std::size_t begin = 0;
  std::size_t count = 0;
};
std::size_t block_share(int size, std::size_t count, std::size_t element);
Block direct_block(int rank, int size, std::size_t count, std::size_t element);

// Bytes of each network transfer but the last of a send of `bytes` in the Simple protocol; at most kP2pStepBytes.
std::size_t p2p_chunk_bytes(std::size_t bytes);

// In which order NCCL's plan goes through the peers, where each rank is a node of its own. The rank itself is left out.
struct P2pRound {
  int send_peer = 0;
  int recv_peer = 0;
};
std::vector<P2pRound> p2p_schedule(int rank, int size);

// Elements [begin, end) of a block.
struct ElementRange {
  std::size_t begin = 0;
  std::size_t end = 0;
  bool operator==(const ElementRange&) const = default;
};

// The elements that lost at least a byte of a send of `bytes` in chunks of `chunk`: ascending, disjoint. What lies
// outside of the send is ignored.
std::vector<ElementRange> lost_elements(std::span<const LostBytes> lost, std::size_t chunk, std::size_t bytes,
                                        std::size_t element);
std::size_t count_of(std::span<const ElementRange> ranges);
void zero_elements(std::byte* block, std::span<const ElementRange> ranges, std::size_t element);
// The contrary: keeps these of `count` elements.
void zero_all_but(std::byte* block, std::span<const ElementRange> ranges, std::size_t count, std::size_t element);

// Elements [begin, end) to which `missing` ranks have not contributed, above 0. Ascending, disjoint.
struct ShortRange {
  std::size_t begin = 0;
  std::size_t end = 0;
  int missing = 0;
  bool operator==(const ShortRange&) const = default;
};
// `missing`: by rank, each as lost_elements() makes it.
std::vector<ShortRange> short_ranges(std::span<const std::vector<ElementRange>> missing);

// Multiplies each element of which m contributions of `ranks` are missing by ranks / (ranks - m), in double precision;
// one that has none becomes 0. Floats only.
void rescale(std::byte* block, DataType type, int ranks, std::span<const std::vector<ElementRange>> missing);

}  // namespace clustar::bench::proxy
