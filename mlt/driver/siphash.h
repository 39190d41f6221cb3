// SipHash-2-4 (Aumasson, Bernstein, 2012) of one 64-bit word: a keyed hash that nobody can predict without the key.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace clustar::mlt::driver {

namespace detail {

struct SipState {
  std::uint64_t v0, v1, v2, v3;
  void rounds(int count) {
    for (int i = 0; i < count; ++i) {
      v0 += v1;
      v1 = std::rotl(v1, 13) ^ v0;
      v0 = std::rotl(v0, 32);
      v2 += v3;
      v3 = std::rotl(v3, 16) ^ v2;
      v0 += v3;
      v3 = std::rotl(v3, 21) ^ v0;
      v2 += v1;
      v1 = std::rotl(v1, 17) ^ v2;
      v2 = std::rotl(v2, 32);
    }
  }
  void absorb(std::uint64_t word) {
    v3 ^= word;
    rounds(2);
    v0 ^= word;
  }
};

constexpr std::uint64_t little_endian(const std::byte* bytes) {
  std::uint64_t word = 0;
  for (int i = 7; i >= 0; --i) word = word << 8 | std::to_integer<std::uint64_t>(bytes[i]);
  return word;
}

}  // namespace detail

// The word is hashed as its 8 bytes, least significant first.
inline std::uint64_t siphash(const std::array<std::byte, 16>& key, std::uint64_t word) {
  const std::uint64_t k0 = detail::little_endian(key.data());
  const std::uint64_t k1 = detail::little_endian(key.data() + 8);
  detail::SipState state{k0 ^ 0x736f6d6570736575, k1 ^ 0x646f72616e646f6d, k0 ^ 0x6c7967656e657261,
                         k1 ^ 0x7465646279746573};
  state.absorb(word);
  state.absorb(std::uint64_t{8} << 56);  // the length, and nothing behind it
  state.v2 ^= 0xff;
  state.rounds(4);
  return state.v0 ^ state.v1 ^ state.v2 ^ state.v3;
}

}  // namespace clustar::mlt::driver
