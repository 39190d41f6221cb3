// Where payloads go that nobody wants: all of them to the same memory, so that however many peers announce to closed
// channels, it stays below twice the longest payload.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <memory>

namespace clustar::transport::ofi {

class WasteMemory {
 public:
  using Shared = std::shared_ptr<std::byte[]>;
  static constexpr std::size_t kMost = 64 << 20;  // the longest chunk that a sender's settings allow

  // `bytes` of them, kMost at most; all who hold memory may hold the same. Given back with the last of them. Null:
  // there is no memory.
  Shared at_least(std::size_t bytes);

 private:
  static constexpr std::size_t kLeast = 64 << 10;

  static constexpr std::size_t kLengths = std::bit_width(kMost / kLeast);

  std::array<std::weak_ptr<std::byte[]>, kLengths> held_;  // of kLeast << i bytes
};

}  // namespace clustar::transport::ofi
