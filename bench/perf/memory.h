// The buffers of a measurement: cold (larger than the caches), filled with content that can be checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "transport/base/result.h"

namespace clustar::bench::perf {

// An anonymous mapping, page-aligned, every page touched.
class Memory {
 public:
  Memory() = default;
  ~Memory();
  Memory(Memory&& other) noexcept;
  Memory& operator=(Memory&& other) noexcept;
  static Result<Memory> allocate(std::size_t bytes);

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  std::span<std::byte> part(std::size_t offset, std::size_t length) const { return {data_ + offset, length}; }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

// The byte sequence of a seed: 64-bit words that depend on seed and position, so that stale, shifted or swapped content
// differs.
void fill(std::span<std::byte> into, std::uint64_t seed);
// Position of the first byte that differs from the seed's sequence.
std::optional<std::size_t> first_difference(std::span<const std::byte> data, std::uint64_t seed);

}  // namespace clustar::bench::perf
