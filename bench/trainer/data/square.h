// Square colour images: what every image of a file becomes before it is an example.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace clustar::bench::trainer {

struct Square {
  std::size_t side = 0;
  std::vector<std::uint8_t> pixels;  // side x side x 3
};

// Of images in files, whatever their headers say.
inline constexpr std::size_t kMaxImageSide = 16384;
inline constexpr std::size_t kMaxImagePixels = std::size_t{1} << 26;

// Writes side x side x 3 values to `to`. Bilinear; where the image becomes smaller, each value is a mean over all that
// it covers, as Pillow does it. In integers, so that all machines get the same bits.
void resample(const std::uint8_t* from, std::size_t from_side, std::size_t side, std::uint8_t* to);

}  // namespace clustar::bench::trainer
