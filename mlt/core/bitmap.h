// Which packets of one message are here, missing or acknowledged: one bit per packet index.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace clustar::mlt {

// Up to kMaxSize bits; a copy is a value. It allocates only in the constructor and in a reset() past every earlier
// size.
class PacketBitmap {
 public:
  static constexpr std::uint32_t kMaxSize = 1u << 20;  // packets of a message: 1.4 GiB at 1,408 B

  PacketBitmap() = default;
  // Room for `capacity` bits (cut at kMaxSize); size() is 0.
  explicit PacketBitmap(std::uint32_t capacity);

  // All bits clear. False, and nothing changes, when size > kMaxSize.
  [[nodiscard]] bool reset(std::uint32_t size);

  std::uint32_t size() const { return size_; }
  std::uint32_t count() const { return count_; }                    // bits set
  std::uint32_t missing() const { return size_ - count_; }          // bits clear
  bool all() const { return count_ == size_; }                      // true when empty
  std::uint32_t count(std::uint32_t from, std::uint32_t to) const;  // set in [from, to); the range is cut at size()

  // An index at or behind size() reads as clear and is never changed. True: the bit changed.
  bool test(std::uint32_t index) const { return index < size_ && (words_[index / 64] >> (index % 64) & 1) != 0; }
  bool set(std::uint32_t index);
  bool clear(std::uint32_t index);
  // Sets [from, to), cut at size(); returns how many of them were clear.
  std::uint32_t set_range(std::uint32_t from, std::uint32_t to);

  // The first such index at or behind `from`; size() when there is none.
  std::uint32_t first_clear(std::uint32_t from) const { return first(from, ~std::uint64_t{0}); }
  std::uint32_t first_set(std::uint32_t from) const { return first(from, 0); }

  // Bits 64 i .. 64 i + 63, the lowest index in the least significant bit; 0 behind the end.
  std::uint64_t word(std::uint32_t i) const { return i < words_in_use() ? words_[i] : 0; }

  // The window [base, base + 8 * out.size()) in network order: index base + 8 k + j is bit 7 - j of byte k: the
  // leftmost bit is the first packet. Indices behind size() are written as 0.
  void extract(std::uint32_t base, std::span<std::byte> out) const;

 private:
  std::uint32_t words_in_use() const { return (size_ + 63) / 64; }
  std::uint32_t first(std::uint32_t from, std::uint64_t flip) const;
  // 64 bits from `base` on, the lowest index in the least significant bit.
  std::uint64_t bits_from(std::uint64_t base) const;

  std::vector<std::uint64_t> words_;  // bits at or behind size_ are 0
  std::uint32_t size_ = 0;
  std::uint32_t count_ = 0;
};

}  // namespace clustar::mlt
