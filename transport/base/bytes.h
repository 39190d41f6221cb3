// Big-endian access to wire structs: offsets are template arguments, the length is checked once by the caller's span
// type.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace clustar {

namespace detail {
template <class T>
constexpr T big_endian(T value) {
  static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "add the identity case for a big-endian machine");
  if constexpr (sizeof(T) == 1) return value;
  if constexpr (sizeof(T) == 2) return static_cast<T>(__builtin_bswap16(value));
  if constexpr (sizeof(T) == 4) return static_cast<T>(__builtin_bswap32(value));
  if constexpr (sizeof(T) == 8) return static_cast<T>(__builtin_bswap64(value));
}
}  // namespace detail

template <std::size_t Size>
class WireReader {
 public:
  explicit WireReader(std::span<const std::byte, Size> bytes) : bytes_(bytes) {}

  template <class T, std::size_t Offset>
  T load() const {
    static_assert(Offset + sizeof(T) <= Size);
    T value;
    std::memcpy(&value, bytes_.data() + Offset, sizeof(T));
    return detail::big_endian(value);
  }
  template <std::size_t Offset, std::size_t Count>
  void copy_to(std::span<std::byte, Count> out) const {
    static_assert(Offset + Count <= Size);
    std::memcpy(out.data(), bytes_.data() + Offset, Count);
  }

 private:
  std::span<const std::byte, Size> bytes_;
};

// Starts from zeroes, so that reserved fields are sent as 0.
template <std::size_t Size>
class WireWriter {
 public:
  explicit WireWriter(std::span<std::byte, Size> bytes) : bytes_(bytes) { std::memset(bytes.data(), 0, Size); }

  template <std::size_t Offset, class T>
  void store(T value) {
    static_assert(Offset + sizeof(T) <= Size);
    value = detail::big_endian(value);
    std::memcpy(bytes_.data() + Offset, &value, sizeof(T));
  }
  template <std::size_t Offset, std::size_t Count>
  void copy_from(std::span<const std::byte, Count> in) {
    static_assert(Offset + Count <= Size);
    std::memcpy(bytes_.data() + Offset, in.data(), Count);
  }

 private:
  std::span<std::byte, Size> bytes_;
};

}  // namespace clustar
