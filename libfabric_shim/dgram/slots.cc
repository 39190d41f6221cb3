#include "libfabric_shim/dgram/slots.h"

#include <cassert>
#include <utility>

namespace clustar::transport::ofi {
namespace {

constexpr std::size_t kLine = 64;

}  // namespace

Result<Slots> Slots::make(Domain& domain, std::size_t count, std::size_t bytes_each) {
  Slots made;
  made.bytes_each_ = bytes_each;
  // An odd number of cache lines: neighbours a power of two apart would share the few places that their starts can
  // have.
  made.stride_ = ((bytes_each + kLine - 1) / kLine | 1) * kLine;
  made.memory_ = std::make_unique_for_overwrite<std::byte[]>(count * made.stride_);
  auto region = MemoryRegion::make(domain, made.memory_.get(), count * made.stride_);
  if (!region) return tl::unexpected(region.error());
  made.region_ = std::move(*region);
  made.contexts_.resize(count);
  made.taken_.resize(count);
  for (std::size_t i = count; i > 0; --i) made.free_.push_back(static_cast<std::uint32_t>(i - 1));
  return made;
}

std::uint32_t Slots::take() {
  assert(!free_.empty());
  const std::uint32_t slot = free_.back();
  free_.pop_back();
  taken_[slot] = true;
  return slot;
}

bool Slots::give_back(std::uint32_t slot) {
  if (slot >= taken_.size() || !taken_[slot]) return false;
  taken_[slot] = false;
  free_.push_back(slot);
  return true;
}

}  // namespace clustar::transport::ofi
