#include "transport/base/regular_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace clustar {
namespace {

tl::unexpected<Error> kernel_says(int error) { return fail(ErrorCode::kSystem, std::strerror(error)); }

}  // namespace

Result<RegularFile> RegularFile::open(const std::string& path) {
  FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat about {};
  if (!file || fstat(file.fd(), &about) != 0) return kernel_says(errno);
  if (S_ISDIR(about.st_mode)) return fail(ErrorCode::kInvalidArgument, std::strerror(EISDIR));
  if (!S_ISREG(about.st_mode)) return fail(ErrorCode::kInvalidArgument, "it is not a regular file");
  return RegularFile(std::move(file), static_cast<std::uint64_t>(about.st_size));
}

Result<std::size_t> RegularFile::read(std::span<std::byte> to) {
  std::size_t at = 0;
  while (at < to.size()) {
    const ssize_t got = ::read(file_.fd(), to.data() + at, to.size() - at);
    if (got == 0) break;
    if (got > 0) {
      at += static_cast<std::size_t>(got);
    } else if (errno != EINTR) {
      return kernel_says(errno);
    }
  }
  return at;
}

}  // namespace clustar
