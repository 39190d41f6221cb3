// What the ranks of a tolerant group agreed on.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <string>

#include "paraexpress/core/forest.h"
#include "transport/base/result.h"
#include "transport/base/time.h"

namespace clustar::paraexpress::tolerant {

inline constexpr std::size_t kMostGroup = 256;
inline constexpr std::uint32_t kMostBuckets = 4096;
inline constexpr std::uint64_t kMostElements = std::uint64_t{1} << 40;  // of a bucket
using Members = std::bitset<kMostGroup>;

inline constexpr std::uint32_t kMostWeight = 1 << 20;  // gradients in a contribution

// What went wrong, and whose fault it is.
struct Fault {
  Member guilty = 0;
  ErrorCode code = ErrorCode::kInvalidUsage;
  std::string what{};
};

struct Terms {
  Member self = 0;
  std::uint32_t ranks = 1;    // 1 .. kMostGroup
  std::uint32_t buckets = 1;  // 1 .. kMostBuckets
  // A round closes with so many contributions at least, 1 .. ranks.
  std::uint32_t quorum = 1;
  // How long a round waits for the others, from the first gradient on that was computed for it.
  Duration deadline{};
  // So many rounds in a row may close without a rank (SSP, Ho et al., NIPS 2013). 0: each waits for all.
  std::uint32_t staleness = 0;
  // Sums are multiplied by ranks / contributions that came; otherwise they are plain.
  bool scales = true;
};

// The part of a bucket that a rank adds up, in elements: its root is that rank.
inline ElementRange part_of(Member rank, std::uint32_t ranks, std::uint64_t count) {
  const auto at = [&](std::uint64_t parts) {
    return static_cast<std::uint64_t>(static_cast<unsigned __int128>(count) * parts / ranks);
  };
  return {at(rank), at(rank + 1)};
}

}  // namespace clustar::paraexpress::tolerant
