// The pre-shared key as it lies on disk.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "transport/base/result.h"

namespace clustar::transport::crypto {

// Bytes that are overwritten before their memory is given back. Never printed.
class Secret {
 public:
  static constexpr std::size_t kMin = 16;
  static constexpr std::size_t kMax = 4096;

  Secret() = default;
  explicit Secret(std::vector<std::byte> bytes) : bytes_(std::move(bytes)) {}
  ~Secret() { wipe(); }
  Secret(Secret&& other) noexcept { bytes_.swap(other.bytes_); }
  Secret& operator=(Secret&& other) noexcept {
    bytes_.swap(other.bytes_);
    return *this;
  }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  void wipe();
  std::vector<std::byte> bytes_;
};

// The file's content without one newline at its end: kMin .. kMax bytes. Refused, with the fix: what is no regular
// file, belongs to another user than this one and root, or may be read or written by group or others.
Result<Secret> read_psk(const std::string& path);

}  // namespace clustar::transport::crypto
