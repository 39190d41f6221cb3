// Where a buffer lives: the one description of memory that every layer passes on.
#pragma once

#include <cstddef>
#include <cstdint>

namespace clustar::gdr {

enum class MemoryKind : std::uint8_t {
  kHost,    // pageable or pinned host memory
  kCuda,    // device memory addressed by a CUDA pointer
  kDmaBuf,  // device memory exported as a dma-buf descriptor
};

// A non-owning reference to `length` bytes. For kDmaBuf, `fd` and `offset` name the export; the creator of the
// reference keeps the descriptor open only during registration, so code that keeps it must duplicate it.
struct MemoryRef {
  MemoryKind kind = MemoryKind::kHost;
  std::byte* address = nullptr;
  std::size_t length = 0;
  int fd = -1;
  std::uint64_t offset = 0;

  static MemoryRef host(void* address, std::size_t length) {
    return {MemoryKind::kHost, static_cast<std::byte*>(address), length, -1, 0};
  }
};

// Of a set of kinds.
constexpr std::uint32_t bit(MemoryKind kind) { return 1u << static_cast<unsigned>(kind); }
inline constexpr std::uint32_t kHostOnly = bit(MemoryKind::kHost);
inline constexpr std::uint32_t kAnyKind = kHostOnly | bit(MemoryKind::kCuda) | bit(MemoryKind::kDmaBuf);

constexpr const char* to_string(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::kHost: return "host";
    case MemoryKind::kCuda: return "cuda";
    case MemoryKind::kDmaBuf: return "dma-buf";
  }
  return "?";
}

}  // namespace clustar::gdr
