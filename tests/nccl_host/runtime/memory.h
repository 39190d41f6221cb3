#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

namespace nccl_host {

enum class MemoryKind { kDevice, kHost, kRegisteredHost };

struct MemoryRange {
  uintptr_t begin = 0;
  size_t size = 0;
  MemoryKind kind = MemoryKind::kDevice;
};

// What the process has of device memory (which is host memory, here) and of host memory that CUDA knows. Thread-safe.
class Memory {
 public:
  // Zeroed, page-aligned; nullptr where there is no more.
  void* Allocate(size_t size, MemoryKind kind);
  // False where nothing of that kind begins there.
  bool Free(void* begin);
  bool Register(void* begin, size_t size);
  bool Unregister(void* begin);
  // The range that holds the address.
  std::optional<MemoryRange> Find(const void* address) const;
  size_t count() const;

 private:
  std::optional<MemoryRange> Remove(void* begin, bool registered);

  mutable std::mutex mutex_;
  std::map<uintptr_t, MemoryRange> ranges_;
};

}  // namespace nccl_host
