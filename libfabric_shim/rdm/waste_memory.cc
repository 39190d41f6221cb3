#include "libfabric_shim/rdm/waste_memory.h"

#include <algorithm>
#include <bit>
#include <new>

namespace clustar::transport::ofi {

// Each is at least twice as long as the one before it, which some may still hold: that is the bound of the sum.
WasteMemory::Shared WasteMemory::at_least(std::size_t bytes) {
  if (bytes > kMost) return nullptr;
  Shared memory = latest_.lock();
  if (memory != nullptr && bytes <= bytes_) return memory;
  const std::size_t wanted = std::bit_ceil(std::max(bytes, kLeast));
  memory.reset(new (std::nothrow) std::byte[wanted]);
  if (memory == nullptr) return nullptr;
  latest_ = memory;
  bytes_ = wanted;
  return memory;
}

}  // namespace clustar::transport::ofi
