// A generated set of digits, shaped as MNIST, so that the trainer runs without any download. Drawn, not photographed:
// accuracies on it say nothing about MNIST.
#pragma once

#include <cstddef>
#include <cstdint>

#include "bench/trainer/data/dataset.h"

namespace clustar::bench::trainer {

inline constexpr std::size_t kDefaultDigits = 10000;

// `count` images of 28 x 28 in 10 classes as equal in number as possible: stroke glyphs with seeded wobble, rotation,
// shear, scale, shift, pen width, a stray stroke and noise. Example i depends on seed and i only, and has the same
// pixels on every machine (no library function that rounds differently is used).
Dataset generate_digits(std::size_t count, std::uint64_t seed);

}  // namespace clustar::bench::trainer
