#include "mlt/core/bitmap.h"

#include <algorithm>
#include <bit>

namespace clustar::mlt {

namespace {

// Not std::popcount: without a CPU flag it is a call into the compiler's library, which a pure core does not have.
std::uint32_t popcount(std::uint64_t v) {
  v -= v >> 1 & 0x5555555555555555;
  v = (v & 0x3333333333333333) + (v >> 2 & 0x3333333333333333);
  return static_cast<std::uint32_t>(((v + (v >> 4)) & 0x0f0f0f0f0f0f0f0f) * 0x0101010101010101 >> 56);
}

// Reverses the bits of each byte, so that the lowest index comes to stand leftmost.
std::uint64_t mirror_bytes(std::uint64_t v) {
  v = (v >> 1 & 0x5555555555555555) | (v & 0x5555555555555555) << 1;
  v = (v >> 2 & 0x3333333333333333) | (v & 0x3333333333333333) << 2;
  return (v >> 4 & 0x0f0f0f0f0f0f0f0f) | (v & 0x0f0f0f0f0f0f0f0f) << 4;
}

// Bits [from, to) of one word; 0 <= from < to <= 64.
std::uint64_t mask(std::uint32_t from, std::uint32_t to) { return (~std::uint64_t{0} >> (64 - (to - from))) << from; }

}  // namespace

PacketBitmap::PacketBitmap(std::uint32_t capacity) { words_.reserve((std::min(capacity, kMaxSize) + 63) / 64); }

bool PacketBitmap::reset(std::uint32_t size) {
  if (size > kMaxSize) return false;
  size_ = size;
  count_ = 0;
  words_.assign(words_in_use(), 0);
  return true;
}

bool PacketBitmap::set(std::uint32_t index) {
  if (index >= size_ || test(index)) return false;
  words_[index / 64] |= std::uint64_t{1} << (index % 64);
  ++count_;
  return true;
}

bool PacketBitmap::clear(std::uint32_t index) {
  if (!test(index)) return false;
  words_[index / 64] &= ~(std::uint64_t{1} << (index % 64));
  --count_;
  return true;
}

std::uint32_t PacketBitmap::set_range(std::uint32_t from, std::uint32_t to) {
  to = std::min(to, size_);
  std::uint32_t changed = 0;
  while (from < to) {
    const std::uint32_t end = std::min(to, (from / 64 + 1) * 64);
    std::uint64_t& word = words_[from / 64];
    const std::uint64_t fresh = mask(from % 64, from % 64 + (end - from)) & ~word;
    word |= fresh;
    changed += popcount(fresh);
    from = end;
  }
  count_ += changed;
  return changed;
}

std::uint32_t PacketBitmap::count(std::uint32_t from, std::uint32_t to) const {
  to = std::min(to, size_);
  std::uint32_t total = 0;
  while (from < to) {
    const std::uint32_t end = std::min(to, (from / 64 + 1) * 64);
    total += popcount(words_[from / 64] & mask(from % 64, from % 64 + (end - from)));
    from = end;
  }
  return total;
}

std::uint32_t PacketBitmap::first(std::uint32_t from, std::uint64_t flip) const {
  if (from >= size_) return size_;
  std::uint32_t i = from / 64;
  std::uint64_t candidates = (words_[i] ^ flip) & (~std::uint64_t{0} << (from % 64));
  while (candidates == 0) {
    if (++i == words_in_use()) return size_;
    candidates = words_[i] ^ flip;
  }
  return std::min(size_, i * 64 + static_cast<std::uint32_t>(std::countr_zero(candidates)));
}

std::uint64_t PacketBitmap::bits_from(std::uint64_t base) const {
  if (base >= size_) return 0;
  const auto i = static_cast<std::uint32_t>(base / 64);
  const auto shift = static_cast<std::uint32_t>(base % 64);
  return shift == 0 ? words_[i] : words_[i] >> shift | word(i + 1) << (64 - shift);
}

void PacketBitmap::extract(std::uint32_t base, std::span<std::byte> out) const {
  for (std::size_t at = 0; at < out.size(); at += 8) {
    const std::uint64_t value = mirror_bytes(bits_from(base + std::uint64_t{8} * at));
    const std::size_t bytes = std::min<std::size_t>(8, out.size() - at);
    for (std::size_t k = 0; k < bytes; ++k) out[at + k] = static_cast<std::byte>(value >> (8 * k));
  }
}

}  // namespace clustar::mlt
