// A text of the user's, in the alphabet of the generated one.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "bench/trainer/data/dataset.h"
#include "transport/base/result.h"

namespace clustar::bench::trainer {

// Consecutive examples of kTextTokens characters, whose labels are the next ones; what is left at the end is dropped.
// Capital letters become small ones, tab and carriage return a space, '!' '.', ';' and ':' ','; what else is not in the
// alphabet becomes '-', and the source says how much that is. Errors name the file, line and byte: a byte of 0, which
// no text has, or fewer than five examples.
Result<Dataset> text_dataset(std::span<const std::uint8_t> bytes, const std::string& name);
Result<Dataset> load_text(const std::string& path);

}  // namespace clustar::bench::trainer
