// A whole file in memory, or its beginning.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "transport/base/result.h"

namespace clustar::bench::trainer {

// Errors name the file: not there, no regular file (a pipe would wait for its other end), empty, larger than `most`
// bytes, not readable.
Result<std::vector<std::uint8_t>> file_bytes(const std::string& path, std::uint64_t most);

struct FileHead {
  std::vector<std::uint8_t> bytes;  // `most` of them, or all
  std::uint64_t size = 0;           // of the whole file
};
// The same, but a file may be as large as it likes.
Result<FileHead> file_head(const std::string& path, std::uint64_t most);

}  // namespace clustar::bench::trainer
