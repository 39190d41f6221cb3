#include "bench/trainer/nccl/losses.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace clustar::bench::trainer {

using proxy::ElementRange;

void join_ranges(std::span<std::vector<ElementRange>> missing, std::size_t most) {
  std::size_t total = 0;
  std::vector<std::size_t> gaps;
  for (const auto& ranges : missing) {
    total += ranges.size();
    for (std::size_t i = 1; i < ranges.size(); ++i) gaps.push_back(ranges[i].begin - ranges[i - 1].end);
  }
  if (total <= most || gaps.empty()) return;
  const std::size_t too_many = std::min(total - most, gaps.size());
  const auto widest = gaps.begin() + static_cast<std::ptrdiff_t>(too_many - 1);
  std::nth_element(gaps.begin(), widest, gaps.end());
  const std::size_t last = *widest;
  // Of the gaps of that length as many as are left over, once all shorter ones are joined.
  std::size_t of_last = too_many - static_cast<std::size_t>(std::count_if(gaps.begin(), gaps.end(),
                                                                          [&](std::size_t gap) { return gap < last; }));
  for (auto& ranges : missing) {
    std::vector<ElementRange> fewer;
    for (const ElementRange& range : ranges) {
      const std::size_t gap = fewer.empty() ? last + 1 : range.begin - fewer.back().end;
      const bool joins = gap < last || (gap == last && of_last > 0);
      if (gap == last && joins) --of_last;
      if (joins) {
        fewer.back().end = range.end;
      } else {
        fewer.push_back(range);
      }
    }
    ranges = std::move(fewer);
  }
}

void MissingTables::fill(std::span<const std::vector<ElementRange>> missing, int own, std::size_t block, bool rescale) {
  std::fill(words_.begin(), words_.end(), 0);
  const int ranks = static_cast<int>(missing.size());
  std::size_t word = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const std::size_t contribution = static_cast<std::size_t>(rank < own ? rank : rank - 1) * block;
    for (const ElementRange& range : missing[static_cast<std::size_t>(rank)]) {
      zero()[word++] = contribution + range.begin * sizeof(float);
      zero()[word++] = (range.end - range.begin) * sizeof(float);
    }
  }
  if (!rescale) return;
  word = 0;
  for (const proxy::ShortRange& range : proxy::short_ranges(missing)) {
    segments()[word++] = range.begin;
    segments()[word++] = range.end - range.begin;
    segments()[word++] = static_cast<std::uint64_t>(ranks - range.missing);
  }
}

std::vector<std::uint8_t> most_important(std::span<const float> sums, double fraction) {
  std::vector<std::size_t> order(sums.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto wanted = static_cast<std::size_t>(std::ceil(fraction * static_cast<double>(sums.size())));
  const std::size_t count = std::min(wanted, sums.size());
  const auto weight = [&](std::size_t block) {
    return std::isnan(sums[block]) ? std::numeric_limits<float>::infinity() : sums[block];
  };
  const auto before = [&](std::size_t a, std::size_t b) {
    return weight(a) != weight(b) ? weight(a) > weight(b) : a < b;
  };
  std::nth_element(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count), order.end(), before);
  std::vector<std::uint8_t> marks(sums.size());
  for (std::size_t i = 0; i < count; ++i) marks[order[i]] = 1;
  return marks;
}

}  // namespace clustar::bench::trainer
