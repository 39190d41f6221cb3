// Where a device is reached, in the words of its backend: opaque to everybody but the same backend at the peer.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace clustar::transport::io {

class AddressBlob {
 public:
  static constexpr std::size_t kMax = 96;

  AddressBlob() = default;  // empty: of a backend whose peers need no address
  // Nothing: more than kMax bytes.
  static std::optional<AddressBlob> of(std::span<const std::byte> bytes) {
    if (bytes.size() > kMax) return std::nullopt;
    AddressBlob blob;
    blob.size_ = static_cast<std::uint8_t>(bytes.size());
    std::copy(bytes.begin(), bytes.end(), blob.bytes_.begin());
    return blob;
  }

  std::span<const std::byte> bytes() const { return std::span(bytes_).first(size_); }
  // With zeroes behind it, as it travels.
  const std::array<std::byte, kMax>& padded() const { return bytes_; }
  bool operator==(const AddressBlob&) const = default;

 private:
  std::uint8_t size_ = 0;
  std::array<std::byte, kMax> bytes_{};
};

}  // namespace clustar::transport::io
