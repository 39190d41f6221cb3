#include "libfabric_shim/rdm/waste_memory.h"

#include <algorithm>
#include <bit>
#include <new>

namespace clustar::transport::ofi {

// One at most of each length, and none where a longer one is still held: that is the bound of the sum.
WasteMemory::Shared WasteMemory::at_least(std::size_t bytes) {
  if (bytes > kMost) return nullptr;
  const std::size_t wanted = std::bit_ceil(std::max(bytes, kLeast));
  const std::size_t first = static_cast<std::size_t>(std::bit_width(wanted / kLeast)) - 1;
  for (std::size_t i = first; i < kLengths; ++i) {
    if (Shared memory = held_[i].lock()) return memory;
  }
  const Shared memory(new (std::nothrow) std::byte[wanted]);
  if (memory != nullptr) held_[first] = memory;
  return memory;
}

}  // namespace clustar::transport::ofi
