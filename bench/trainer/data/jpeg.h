// JPEG images, read by libjpeg.
#pragma once

#include <cstdint>
#include <span>

#include "bench/trainer/data/square.h"
#include "transport/base/result.h"

namespace clustar::bench::trainer {

// The centred square of the image; grey becomes colour. Strict: what libjpeg would only warn of and fill with grey,
// data that is cut off or damaged, is an error, as is CMYK. kUnavailable in a build without libjpeg. Any thread.
Result<Square> read_jpeg(std::span<const std::uint8_t> bytes);

}  // namespace clustar::bench::trainer
