#include "bench/trainer/data/file_bytes.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "transport/base/regular_file.h"

namespace clustar::bench::trainer {
namespace {

Result<RegularFile> opened(const std::string& path) {
  auto file = RegularFile::open(path);
  if (!file) return fail(file.error().code, fmt::format("cannot open '{}': {}", path, file.error().message));
  if (file->size() == 0) return fail(ErrorCode::kInvalidArgument, fmt::format("'{}' is empty", path));
  return file;
}

// Fewer than `size` bytes where the file has become shorter.
Result<std::vector<std::uint8_t>> first_bytes(RegularFile& file, const std::string& path, std::uint64_t size) {
  std::vector<std::uint8_t> bytes(size);
  const auto got = file.read(std::as_writable_bytes(std::span(bytes)));
  if (!got) return fail(got.error().code, fmt::format("cannot read '{}': {}", path, got.error().message));
  bytes.resize(*got);
  return bytes;
}

}  // namespace

Result<std::vector<std::uint8_t>> file_bytes(const std::string& path, std::uint64_t most) {
  auto file = opened(path);
  if (!file) return tl::unexpected(file.error());
  if (file->size() > most) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("'{}' has {} bytes; allowed: at most {}", path, file->size(), most));
  }
  return first_bytes(*file, path, file->size());
}

Result<FileHead> file_head(const std::string& path, std::uint64_t most) {
  auto file = opened(path);
  if (!file) return tl::unexpected(file.error());
  auto bytes = first_bytes(*file, path, std::min(file->size(), most));
  if (!bytes) return tl::unexpected(bytes.error());
  return FileHead{std::move(*bytes), file->size()};
}

}  // namespace clustar::bench::trainer
