#include "bench/trainer/data/square.h"

#include <algorithm>
#include <cstdlib>

namespace clustar::bench::trainer {
namespace {

constexpr std::size_t kChannels = 3;
constexpr unsigned kWeightBits = 20;
constexpr std::uint32_t kHalf = 1u << (kWeightBits - 1);

// Which values along a side become one, and with what weights.
struct Taps {
  std::size_t first = 0;
  std::vector<std::uint32_t> weights;  // in units of 2^-kWeightBits
};

// A triangle around the middle of value `index` of `to`, as wide on either side as a value of the coarser grid. Places
// are counted in units of 1 / (2 to) of a value of `from`.
Taps taps_of(std::int64_t index, std::int64_t from, std::int64_t to) {
  const std::int64_t middle = (2 * index + 1) * from;
  const std::int64_t reach = 2 * std::max(from, to);
  const auto weight = [&](std::int64_t i) { return reach - std::abs((2 * i + 1) * to - middle); };
  std::int64_t i = std::max<std::int64_t>(0, (middle - reach) / (2 * to) - 1);
  while (weight(i) <= 0) ++i;
  Taps taps{static_cast<std::size_t>(i), {}};
  std::vector<std::int64_t> weights;
  std::int64_t sum = 0;
  for (; i < from && weight(i) > 0; ++i) {
    weights.push_back(weight(i));
    sum += weight(i);
  }
  for (const std::int64_t w : weights) {
    taps.weights.push_back(static_cast<std::uint32_t>(((w << kWeightBits) + sum / 2) / sum));
  }
  return taps;
}

std::uint8_t rounded(std::uint32_t sum) {
  return static_cast<std::uint8_t>(std::min<std::uint32_t>(sum >> kWeightBits, 255));
}

}  // namespace

void resample(const std::uint8_t* from, std::size_t from_side, std::size_t side, std::uint8_t* to) {
  if (from_side == side) {
    std::copy_n(from, side * side * kChannels, to);
    return;
  }
  std::vector<Taps> taps;
  for (std::size_t i = 0; i < side; ++i) {
    taps.push_back(
        taps_of(static_cast<std::int64_t>(i), static_cast<std::int64_t>(from_side), static_cast<std::int64_t>(side)));
  }
  const std::size_t row = side * kChannels;
  std::vector<std::uint8_t> narrow(from_side * row);
  for (std::size_t y = 0; y < from_side; ++y) {
    for (std::size_t x = 0; x < side; ++x) {
      std::uint32_t sums[kChannels] = {kHalf, kHalf, kHalf};
      const std::uint8_t* at = from + (y * from_side + taps[x].first) * kChannels;
      for (const std::uint32_t weight : taps[x].weights) {
        for (std::uint32_t& sum : sums) sum += weight * *at++;
      }
      for (std::size_t c = 0; c < kChannels; ++c) narrow[y * row + x * kChannels + c] = rounded(sums[c]);
    }
  }
  std::vector<std::uint32_t> sums(row);
  for (std::size_t y = 0; y < side; ++y) {
    std::fill(sums.begin(), sums.end(), kHalf);
    const std::uint8_t* at = narrow.data() + taps[y].first * row;
    for (const std::uint32_t weight : taps[y].weights) {
      for (std::uint32_t& sum : sums) sum += weight * *at++;
    }
    std::transform(sums.begin(), sums.end(), to + y * row, rounded);
  }
}

}  // namespace clustar::bench::trainer
