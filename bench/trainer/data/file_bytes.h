// A whole file in memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "transport/base/result.h"

namespace clustar::bench::trainer {

// Errors name the file: not there, no regular file (a pipe would wait for its other end), empty, larger than `most`
// bytes, not readable.
Result<std::vector<std::uint8_t>> file_bytes(const std::string& path, std::uint64_t most);

}  // namespace clustar::bench::trainer
