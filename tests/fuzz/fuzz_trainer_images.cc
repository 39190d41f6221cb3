// The readers of images in files and of CIFAR-10: any bytes are an image whose pixels are all there, or an error.
#include <cstdint>
#include <span>
#include <string>

#include "bench/trainer/data/cifar.h"
#include "bench/trainer/data/image_folder.h"
#include "tests/fuzz/input.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  namespace trainer = clustar::bench::trainer;
  using clustar::fuzz::require;
  const std::span<const std::uint8_t> bytes(data, size);
  if (const auto square = trainer::read_image(bytes)) {
    require(square->side >= 1 && square->side <= trainer::kMaxImageSide);
    require(square->pixels.size() == square->side * square->side * 3);
    if (square->side <= 64) {
      std::uint8_t small[5 * 5 * 3];
      trainer::resample(square->pixels.data(), square->side, 5, small);
    }
  } else {
    require(!square.error().message.empty());
  }
  trainer::Dataset dataset;
  if (const auto ok = trainer::append_cifar(bytes, "fuzz", dataset)) {
    require(dataset.labels.size() == size / trainer::kCifarRecord &&
            dataset.pixels.size() == 3072 * dataset.labels.size());
    for (const std::uint16_t label : dataset.labels) require(label < trainer::kCifarClasses);
  } else {
    require(ok.error().message.starts_with("'fuzz'") && dataset.labels.empty() && dataset.pixels.empty());
  }
  return 0;
}
