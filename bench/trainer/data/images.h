// A generated set of colour images, so that models of images train without any download.
#pragma once

#include <cstddef>
#include <cstdint>

#include "bench/trainer/data/dataset.h"

namespace clustar::bench::trainer {

inline constexpr std::size_t kDefaultImages = 1000;

// `count` images of side x side x 3, as equal in number per class as possible. A class is a pair of colours in stripes
// of one direction and width; place, brightness and noise differ from image to image. Example i depends on seed, i and
// the sizes only, and has the same pixels on every machine.
Dataset generate_images(std::size_t count, std::size_t side, std::size_t classes, std::uint64_t seed);

}  // namespace clustar::bench::trainer
