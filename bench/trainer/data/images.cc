#include "bench/trainer/data/images.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "bench/trainer/random.h"

namespace clustar::bench::trainer {
namespace {

constexpr std::uint64_t kClassStream = 1ull << 41;
constexpr std::uint64_t kFirstImageStream = 3ull << 41;
constexpr int kChannels = 3;
constexpr int kUnit = 256;  // of the fixed-point numbers below: libm may round differently elsewhere

struct Pattern {
  int first[kChannels];
  int second[kChannels];
  int along_row;  // stripes per image, times kUnit
  int along_column;
};

int between(int low, int high, Rng& rng) {
  return low + static_cast<int>(rng.below(static_cast<std::uint64_t>(high - low + 1)));
}

Pattern pattern_of(std::size_t label) {
  Rng rng(label, kClassStream);
  Pattern pattern{};
  for (int c = 0; c < kChannels; ++c) {
    pattern.first[c] = between(40, 215, rng);
    pattern.second[c] = between(40, 215, rng);
  }
  pattern.along_row = between(-4 * kUnit, 4 * kUnit, rng);
  pattern.along_column = between(kUnit, 4 * kUnit, rng);
  return pattern;
}

void paint(const Pattern& pattern, int side, Rng& rng, std::uint8_t* pixels) {
  const int phase = between(0, kUnit - 1, rng);
  const int brightness = between(-25, 25, rng);
  for (int y = 0; y < side; ++y) {
    for (int x = 0; x < side; ++x) {
      const int at = (y * pattern.along_column + x * pattern.along_row) / side + phase;
      const int wave = std::abs((at & (kUnit - 1)) - kUnit / 2) * 2;  // a triangle from 0 to kUnit
      const std::uint64_t noise = rng.next();
      for (int c = 0; c < kChannels; ++c, ++pixels) {
        const int colour = (pattern.first[c] * wave + pattern.second[c] * (kUnit - wave)) / kUnit;
        const int grain = static_cast<int>(noise >> (8 * c) & 63) - 32;
        *pixels = static_cast<std::uint8_t>(std::clamp(colour + brightness + grain, 0, 255));
      }
    }
  }
}

}  // namespace

Dataset generate_images(std::size_t count, std::size_t side, std::size_t classes, std::uint64_t seed) {
  Dataset dataset;
  dataset.source = fmt::format("generated images (seed {})", seed);
  dataset.rows = dataset.columns = side;
  dataset.channels = kChannels;
  dataset.classes = classes;
  dataset.scale = kImageScale;
  dataset.offset = kImageOffset;
  dataset.pixels.resize(count * dataset.image_elements());
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t label = i % classes;
    Rng rng(seed, kFirstImageStream + i);
    paint(pattern_of(label), static_cast<int>(side), rng, dataset.pixels.data() + i * dataset.image_elements());
    dataset.labels.push_back(static_cast<std::uint16_t>(label));
  }
  return dataset;
}

}  // namespace clustar::bench::trainer
