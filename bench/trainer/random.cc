#include "bench/trainer/random.h"

#include <numeric>
#include <utility>

namespace clustar::bench::trainer {
// The state that the words of splitmix64 at `seed`, changed by the stream's own first word, fill.
Rng::Rng(std::uint64_t seed, std::uint64_t stream) : words_(seed ^ mix64(stream + kGoldenGamma)) {}

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
