#include "transport/crypto/psk_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "transport/base/file_descriptor.h"

namespace clustar::transport::crypto {
namespace {

tl::unexpected<Error> refuse(const std::string& path, const std::string& what) {
  return fail(ErrorCode::kUnavailable, fmt::format("psk_file {}: {}", path, what));
}

// Of the file that is open, not of a name that may meanwhile mean another.
Result<void> check(const std::string& path, const struct stat& status) {
  if (!S_ISREG(status.st_mode)) return refuse(path, "is not a regular file; name the file that holds the secret");
  if (status.st_uid != geteuid() && status.st_uid != 0) {
    return refuse(path, fmt::format("belongs to user {}, who could change it; allowed: this process's user ({}) or "
                                    "root. chown {} it",
                                    status.st_uid, geteuid(), geteuid()));
  }
  if ((status.st_mode & 077) != 0) {
    return refuse(path,
                  fmt::format("its mode {:o} lets group or others at it; chmod 600 {}", status.st_mode & 07777, path));
  }
  return {};
}

}  // namespace

void Secret::wipe() {
  if (!bytes_.empty()) explicit_bzero(bytes_.data(), bytes_.size());
}

Result<Secret> read_psk(const std::string& path) {
  // Not blocking: a FIFO would wait for its writer before it could be refused.
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!file) {
    return refuse(path, fmt::format("{}; it must exist on every host and be readable by this process's user ({})",
                                    describe_errno(errno), geteuid()));
  }
  struct stat status {};
  if (fstat(file.fd(), &status) != 0) return refuse(path, describe_errno(errno));
  if (const auto checked = check(path, status); !checked) return tl::unexpected(checked.error());
  // One more than allowed, and a newline.
  std::vector<std::byte> bytes(Secret::kMax + 2);
  std::size_t have = 0;
  while (have < bytes.size()) {
    const ssize_t got = ::read(file.fd(), bytes.data() + have, bytes.size() - have);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return refuse(path, describe_errno(errno));
    if (got == 0) break;
    have += static_cast<std::size_t>(got);
  }
  if (have > 0 && bytes[have - 1] == std::byte{'\n'}) --have;
  if (have < Secret::kMin || have > Secret::kMax) {
    explicit_bzero(bytes.data(), bytes.size());
    return refuse(path,
                  fmt::format("holds {} bytes; {} to {} are allowed. To make one: head -c 32 /dev/urandom | base64",
                              have > Secret::kMax ? fmt::format("more than {}", Secret::kMax) : std::to_string(have),
                              Secret::kMin, Secret::kMax));
  }
  std::fill(bytes.begin() + static_cast<std::ptrdiff_t>(have), bytes.end(), std::byte{0});
  bytes.resize(have);  // in place: no copy is left behind
  return Secret(std::move(bytes));
}

}  // namespace clustar::transport::crypto
