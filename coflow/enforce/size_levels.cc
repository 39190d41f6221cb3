#include "coflow/enforce/size_levels.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

namespace clustar::coflow::enforce {
namespace {

constexpr std::uint64_t kFirst = 64 * 1024;

std::size_t octave(std::uint64_t bytes) {
  return bytes == 0 ? 0 : static_cast<std::size_t>(63 - std::countl_zero(bytes));
}

}  // namespace

std::vector<std::uint64_t> best_limits(std::span<const SizeShare> sizes, std::size_t levels, double load) {
  const std::size_t n = sizes.size();
  if (n < 2 || levels < 2) return {};
  double mean = 0, all = 0;
  for (const SizeShare& one : sizes) {
    mean += one.share * static_cast<double>(one.bytes);
    all += one.share;
  }
  if (!(mean > 0)) return {};
  const double lambda = load / (mean / all);
  // Of limits at sizes[i - 1]; 0: no limit below. rho and half the second moment, cut there; and sums by number.
  std::vector<double> rho(n + 1), moment(n + 1), number(n + 1), bytes(n + 1);
  for (std::size_t i = 1; i <= n; ++i) {
    const auto limit = static_cast<double>(sizes[i - 1].bytes);
    number[i] = number[i - 1] + sizes[i - 1].share / all;
    bytes[i] = bytes[i - 1] + sizes[i - 1].share / all * limit;
    for (const SizeShare& one : sizes) {
      const double cut = std::min(static_cast<double>(one.bytes), limit);
      rho[i] += lambda * one.share / all * cut;
      moment[i] += lambda * one.share / all * cut * cut / 2;
    }
  }
  // What the sizes behind i up to j add if they are one level.
  const auto cost = [&](std::size_t i, std::size_t j) {
    return (number[j] - number[i]) * moment[j] / ((1 - rho[i]) * (1 - rho[j])) + (bytes[j] - bytes[i]) / (1 - rho[i]);
  };
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  std::vector<std::vector<double>> best(levels + 1, std::vector<double>(n + 1, kInfinite));
  std::vector<std::vector<std::size_t>> from(levels + 1, std::vector<std::size_t>(n + 1, 0));
  best[0][0] = 0;
  for (std::size_t level = 1; level <= levels; ++level) {
    for (std::size_t j = 1; j <= n; ++j) {
      for (std::size_t i = 0; i < j; ++i) {
        if (best[level - 1][i] == kInfinite) continue;
        const double sum = best[level - 1][i] + cost(i, j);
        if (sum < best[level][j]) best[level][j] = sum, from[level][j] = i;
      }
    }
  }
  std::size_t level = 1;
  for (std::size_t other = 2; other <= levels; ++other) {
    if (best[other][n] < best[level][n] * (1 - 1e-9)) level = other;
  }
  std::vector<std::uint64_t> limits;
  for (std::size_t j = from[level][n]; j > 0; j = from[--level][j]) limits.push_back(sizes[j - 1].bytes);
  std::reverse(limits.begin(), limits.end());
  return limits;
}

SizeLevels::SizeLevels() {
  constexpr std::uint64_t kAalosFirst = 1'000'000;
  for (int i = 0; i < 13; ++i) limits_.push_back(kAalosFirst << i);
}

std::uint64_t SizeLevels::of_size(std::uint64_t bytes) {
  if (bytes <= kFirst) return 0;
  const std::size_t whole = octave(bytes);
  const std::uint64_t quarter = bytes >> (whole - 2) & 3;
  return std::min<std::uint64_t>(1 + 4 * (whole - octave(kFirst)) + quarter, kMost);
}

std::uint64_t SizeLevels::of_attained(std::uint64_t bytes) const {
  const auto above = std::upper_bound(limits_.begin(), limits_.end(), bytes);
  return above == limits_.begin() ? 0 : of_size(*(above - 1));
}

std::uint64_t SizeLevels::next_limit(std::uint64_t attained) const {
  const auto above = std::upper_bound(limits_.begin(), limits_.end(), attained);
  return above == limits_.end() ? std::numeric_limits<std::uint64_t>::max() : *above;
}

void SizeLevels::saw(std::uint64_t bytes) {
  if (bytes == 0) return;
  const std::size_t bin = octave(bytes);
  ++counts_[bin];
  largest_[bin] = std::max(largest_[bin], bytes);
  if (++seen_ % kLearn != 0) return;
  std::array<SizeShare, 64> sizes;
  std::size_t count = 0;
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    if (counts_[i] > 0) sizes[count++] = {largest_[i], static_cast<double>(counts_[i])};
    counts_[i] /= 2;
    if (counts_[i] == 0) largest_[i] = 0;
  }
  // Of sizes that are all alike nothing is learnt.
  auto limits = best_limits(std::span(sizes).first(count), kLevels, kLoad);
  if (!limits.empty()) limits_ = std::move(limits);
}

}  // namespace clustar::coflow::enforce
