#include "bench/trainer/digest.h"

#include <bit>
#include <cstring>

namespace clustar::bench::trainer {
namespace {

constexpr std::uint64_t kMultiplier = 0x9fb21c651e98df25u;
constexpr std::size_t kLanes = 4;

// A bijection of the state for a given word and of the word for a given state: one changed word never cancels out.
std::uint64_t absorb(std::uint64_t state, std::uint64_t word) {
  state = (state ^ word) * kMultiplier;
  return state ^ (state >> 32);
}

}  // namespace

std::uint64_t digest(std::span<const std::byte> bytes, std::uint64_t seed) {
  // Four lanes, because one chain of multiplications would wait for its own latency.
  std::uint64_t lanes[kLanes];
  for (std::size_t i = 0; i < kLanes; ++i) lanes[i] = absorb(seed, i + 1);
  const std::byte* at = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= kLanes * 8; left -= kLanes * 8, at += kLanes * 8) {
    std::uint64_t words[kLanes];
    std::memcpy(words, at, sizeof words);
    for (std::size_t i = 0; i < kLanes; ++i) lanes[i] = absorb(lanes[i], words[i]);
  }
  std::uint64_t result = absorb(seed, bytes.size());
  for (const std::uint64_t lane : lanes) result = absorb(std::rotl(result, 17), lane);
  while (left > 0) {
    const std::size_t n = left < 8 ? left : 8;
    std::uint64_t word = 0;
    std::memcpy(&word, at, n);
    result = absorb(std::rotl(result, 17), word);
    at += n;
    left -= n;
  }
  return absorb(result, 0);
}

}  // namespace clustar::bench::trainer
