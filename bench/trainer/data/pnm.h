// Images as Netpbm's PPM and PGM have them.
#pragma once

#include <cstdint>
#include <span>

#include "bench/trainer/data/square.h"
#include "transport/base/result.h"

namespace clustar::bench::trainer {

//   P6 <columns> <rows> <highest value> <one white space> rows x columns x (red, green, blue), a byte each
//   P5: the same with one byte of grey per pixel. Between the numbers white space and lines that begin with '#'.
// Strict: values of one byte, none above the highest (1 to 255), and the file ends with the last. The centred square of
// the image, its values spread over 0 to 255. Errors say at which byte; the caller knows the file's name.
Result<Square> read_pnm(std::span<const std::uint8_t> bytes);

}  // namespace clustar::bench::trainer
