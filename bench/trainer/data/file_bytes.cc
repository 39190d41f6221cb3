#include "bench/trainer/data/file_bytes.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "transport/base/file_descriptor.h"

namespace clustar::bench::trainer {

Result<std::vector<std::uint8_t>> file_bytes(const std::string& path, std::uint64_t most) {
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat about {};
  if (!file || fstat(file.fd(), &about) != 0) {
    return fail(ErrorCode::kSystem, fmt::format("cannot open '{}': {}", path, std::strerror(errno)));
  }
  if (!S_ISREG(about.st_mode)) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("'{}' is not a regular file", path));
  }
  if (about.st_size == 0) return fail(ErrorCode::kInvalidArgument, fmt::format("'{}' is empty", path));
  const auto size = static_cast<std::uint64_t>(about.st_size);
  if (size > most) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("'{}' has {} bytes; allowed: at most {}", path, size, most));
  }
  std::vector<std::uint8_t> bytes(size);
  std::size_t at = 0;
  while (at < bytes.size()) {
    const ssize_t got = read(file.fd(), bytes.data() + at, bytes.size() - at);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail(ErrorCode::kSystem, fmt::format("cannot read '{}': {}", path, std::strerror(errno)));
    if (got == 0) break;  // it has become shorter
    at += static_cast<std::size_t>(got);
  }
  bytes.resize(at);
  return bytes;
}

}  // namespace clustar::bench::trainer
