// Seeded random numbers that are the same on every machine and with every C++ library (std distributions are not).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "transport/base/rng.h"

namespace clustar::bench::trainer {

// clustar::Rng with streams, and numbers without its bias. Not for secrets.
class Rng {
 public:
  // Two different streams of one seed are independent of each other.
  explicit Rng(std::uint64_t seed, std::uint64_t stream = 0);

  std::uint64_t next() { return words_.next(); }
  // In [0, 1).
  double uniform() { return words_.uniform(); }
  double uniform(double low, double high);
  // In [0, bound); bound > 0. Unbiased.
  std::uint64_t below(std::uint64_t bound);

 private:
  clustar::Rng words_;
};

// 0 .. count-1 in an order that only `rng` decides (Fisher-Yates).
std::vector<std::uint32_t> permutation(std::size_t count, Rng& rng);

}  // namespace clustar::bench::trainer
