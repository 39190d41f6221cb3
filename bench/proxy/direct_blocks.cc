#include "bench/proxy/direct_blocks.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "bench/proxy/steps.h"
#include "transport/base/half.h"

namespace clustar::bench::proxy {
namespace {

constexpr std::size_t kAlignBytes = 16;

// How many contributions fewer there are from this element on.
struct Edge {
  std::size_t at = 0;
  int change = 0;
};

// A sum of `contributions` of so many ranks, as if all had come.
double rescaled(double sum, int ranks, int contributions) {
  return contributions == 0 ? 0 : sum * ranks / contributions;
}

template <class Stored, class Rescale>
void change(std::byte* block, std::size_t begin, std::size_t end, Rescale rescale) {
  for (std::size_t i = begin; i < end; ++i) {
    std::byte* const at = block + i * sizeof(Stored);
    Stored value;
    std::memcpy(&value, at, sizeof value);
    value = rescale(value);
    std::memcpy(at, &value, sizeof value);
  }
}

void scale(std::byte* block, DataType type, std::size_t begin, std::size_t end, int ranks, int contributions) {
  const auto scaled = [&](double sum) { return rescaled(sum, ranks, contributions); };
  const auto narrowed = [&](double sum) { return static_cast<float>(scaled(sum)); };
  switch (type) {
    case DataType::kFloat32: return change<float>(block, begin, end, narrowed);
    case DataType::kFloat64: return change<double>(block, begin, end, scaled);
    case DataType::kFloat16:
      return change<std::uint16_t>(block, begin, end,
                                   [&](std::uint16_t sum) { return to_float16(narrowed(from_float16(sum))); });
    case DataType::kBfloat16:
      return change<std::uint16_t>(block, begin, end,
                                   [&](std::uint16_t sum) { return to_bfloat16(narrowed(from_bfloat16(sum))); });
    case DataType::kInt32:
    case DataType::kUint8: break;  // refused before
  }
}

}  // namespace

std::size_t block_share(int size, std::size_t count, std::size_t element) {
  return round_up(div_up(count, static_cast<std::size_t>(size)), std::max<std::size_t>(1, kAlignBytes / element));
}

Block direct_block(int rank, int size, std::size_t count, std::size_t element) {
  const std::size_t share = block_share(size, count, element);
  const std::size_t begin = std::min(count, share * static_cast<std::size_t>(rank));
  return {begin, std::min(share, count - begin)};
}

std::size_t p2p_chunk_bytes(std::size_t bytes) {
  if (bytes < kP2pStepBytes) return kP2pStepBytes / 4;
  return bytes < kSteps * kP2pStepBytes ? kP2pStepBytes / 2 : kP2pStepBytes;
}

// NCCL counts distances by (x * x + x) / 2 modulo the next power of two, which meets each once, and leaves out those
// that no rank has.
std::vector<P2pRound> p2p_schedule(int rank, int size) {
  const auto ranks = static_cast<std::uint32_t>(size);
  const auto mine = static_cast<std::uint32_t>(rank);
  const std::uint32_t rounds = std::bit_ceil(ranks);
  std::vector<P2pRound> schedule;
  std::uint32_t distance = 0;
  for (std::uint32_t round = 1; round <= rounds; ++round) {
    if (distance > 0 && distance < ranks) {
      schedule.push_back(
          {static_cast<int>((mine + distance) % ranks), static_cast<int>((mine + ranks - distance) % ranks)});
    }
    distance = (distance + round) & (rounds - 1);
  }
  return schedule;
}

std::vector<ElementRange> lost_elements(std::span<const LostBytes> lost, std::size_t chunk, std::size_t bytes,
                                        std::size_t element) {
  std::vector<ElementRange> ranges;
  for (const LostBytes& part : lost) {
    if (part.bytes == 0 || part.transfer >= div_up(bytes, chunk) || part.offset >= chunk) continue;
    const auto begin = static_cast<std::size_t>(part.transfer) * chunk + static_cast<std::size_t>(part.offset);
    const auto length = static_cast<std::size_t>(std::min<std::uint64_t>(part.bytes, chunk - part.offset));
    if (begin >= bytes) continue;
    ranges.push_back({begin / element, div_up(std::min(bytes, begin + length), element)});
  }
  std::sort(ranges.begin(), ranges.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
  std::vector<ElementRange> merged;
  for (const ElementRange& range : ranges) {
    if (!merged.empty() && range.begin <= merged.back().end) {
      merged.back().end = std::max(merged.back().end, range.end);
    } else {
      merged.push_back(range);
    }
  }
  return merged;
}

std::size_t count_of(std::span<const ElementRange> ranges) {
  std::size_t count = 0;
  for (const ElementRange& range : ranges) count += range.end - range.begin;
  return count;
}

void zero_elements(std::byte* block, std::span<const ElementRange> ranges, std::size_t element) {
  for (const ElementRange& range : ranges) {
    std::memset(block + range.begin * element, 0, (range.end - range.begin) * element);
  }
}

void zero_all_but(std::byte* block, std::span<const ElementRange> ranges, std::size_t count, std::size_t element) {
  std::size_t from = 0;
  for (const ElementRange& range : ranges) {
    std::memset(block + from * element, 0, (range.begin - from) * element);
    from = range.end;
  }
  if (from < count) std::memset(block + from * element, 0, (count - from) * element);
}

std::vector<ShortRange> short_ranges(std::span<const std::vector<ElementRange>> missing) {
  std::vector<Edge> edges;
  for (const auto& ranges : missing) {
    for (const ElementRange& range : ranges) {
      edges.push_back({range.begin, 1});
      edges.push_back({range.end, -1});
    }
  }
  std::sort(edges.begin(), edges.end(), [](const Edge& a, const Edge& b) { return a.at < b.at; });
  std::vector<ShortRange> ranges;
  int without = 0;
  std::size_t from = 0;
  for (const Edge& edge : edges) {
    if (without > 0 && edge.at > from) ranges.push_back({from, edge.at, without});
    without += edge.change;
    from = edge.at;
  }
  return ranges;
}

void rescale(std::byte* block, DataType type, int ranks, std::span<const std::vector<ElementRange>> missing) {
  for (const ShortRange& range : short_ranges(missing)) {
    scale(block, type, range.begin, range.end, ranks, ranks - range.missing);
  }
}

}  // namespace clustar::bench::proxy
