// What a GPU is told of an exchange's losses: which elements did not come, how sums without them are scaled, and which
// gradients are important enough never to be lost. Pure: no device, no network.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "bench/proxy/direct_blocks.h"

namespace clustar::bench::trainer {

inline constexpr std::size_t kMostMissingRanges = 1024;  // of one exchange on one rank

// Joins ranges of the same rank until there are `most` in all, over the smallest gaps first: what lies between counts
// as missing then, though it came. `most` is at least the number of ranks with any.
void join_ranges(std::span<std::vector<proxy::ElementRange>> missing, std::size_t most);

// As the kernels take them (gdr/kernels/arguments.h), a fixed number of each: what is not needed has length 0.
class MissingTables {
 public:
  static constexpr std::size_t kZeroWords = 2 * kMostMissingRanges;
  static constexpr std::size_t kSegments = 2 * kMostMissingRanges;
  static constexpr std::size_t kSegmentWords = 3 * kSegments;
  static constexpr std::size_t kWords = kZeroWords + kSegmentWords;

  explicit MissingTables(std::span<std::uint64_t> words) : words_(words) {}  // kWords

  // `missing`: of the own block's float32, by rank and joined; the contributions of the others lie one behind the other
  // in the order of their ranks, without `own`'s, `block` bytes each. Rescaling: without kRescale nothing.
  void fill(std::span<const std::vector<proxy::ElementRange>> missing, int own, std::size_t block, bool rescale);

  std::span<std::uint64_t> zero() const { return words_.subspan(0, kZeroWords); }
  std::span<std::uint64_t> segments() const { return words_.subspan(kZeroWords); }

 private:
  std::span<std::uint64_t> words_;
};

// 1 for the `fraction` (0 to 1) of blocks with the largest sums, rounded up; among equals the first. What is not a
// number is large.
std::vector<std::uint8_t> most_important(std::span<const float> sums, double fraction);

}  // namespace clustar::bench::trainer
