#include "bench/trainer/random.h"

#include <bit>
#include <numeric>
#include <utility>

namespace clustar::bench::trainer {
namespace {

std::uint64_t splitmix(std::uint64_t& state) {
  state += 0x9e3779b97f4a7c15u;
  std::uint64_t z = state;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

}  // namespace

Rng::Rng(std::uint64_t seed, std::uint64_t stream) {
  std::uint64_t mix = stream;
  std::uint64_t state = seed ^ splitmix(mix);
  for (std::uint64_t& word : state_) word = splitmix(state);
}

std::uint64_t Rng::next() {
  const std::uint64_t result = std::rotl(state_[1] * 5, 7) * 9;
  const std::uint64_t t = state_[1] << 17;
  state_[2] ^= state_[0];
  state_[3] ^= state_[1];
  state_[1] ^= state_[2];
  state_[0] ^= state_[3];
  state_[2] ^= t;
  state_[3] = std::rotl(state_[3], 45);
  return result;
}

double Rng::uniform() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }

double Rng::uniform(double low, double high) { return low + (high - low) * uniform(); }

std::uint64_t Rng::below(std::uint64_t bound) {
  const std::uint64_t reject_below = (0 - bound) % bound;  // 2^64 mod bound
  for (;;) {
    const std::uint64_t value = next();
    if (value >= reject_below) return value % bound;
  }
}

std::vector<std::uint32_t> permutation(std::size_t count, Rng& rng) {
  std::vector<std::uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0u);
  for (std::size_t i = count; i > 1; --i) std::swap(order[i - 1], order[rng.below(i)]);
  return order;
}

}  // namespace clustar::bench::trainer
