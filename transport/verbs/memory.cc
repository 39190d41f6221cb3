#include "transport/verbs/memory.h"

#include <fmt/format.h>

#include <cstring>
#include <new>
#include <utility>

namespace clustar::transport::verbs {
namespace {

// Whole pages of our own: a page that is shared with other data must not be pinned.
constexpr std::align_val_t kPage{4096};

}  // namespace

Result<std::unique_ptr<PortRegions>> PortRegions::make(std::span<const Port> ports, const gdr::MemoryRef& memory,
                                                       int access) {
  auto made = std::make_unique<PortRegions>();
  made->regions_.reserve(ports.size());
  for (const Port& port : ports) {
    auto region = io::verbs::MemoryRegion::make(port.domain, memory, access);
    if (!region) return tl::unexpected(region.error());
    made->regions_.push_back(std::move(*region));
  }
  return made;
}

std::array<std::uint32_t, kMaxPorts> PortRegions::rkeys() const {
  std::array<std::uint32_t, kMaxPorts> keys{};
  for (std::size_t i = 0; i < regions_.size(); ++i) keys[i] = regions_[i].rkey();
  return keys;
}

Result<std::unique_ptr<gdr::Registration>> PortRegistrar::register_pages(const gdr::MemoryRef& pages,
                                                                         std::uint32_t access) {
  gdr::MemoryRef memory = pages;
  if (device_memory_.emulated && memory.kind != gdr::MemoryKind::kHost) {
    // The cache has looked at the descriptor and holds a duplicate, as of a real one. What it maps is at the address.
    if (memory.address == nullptr) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("verbs: {} bytes of emulated {} memory without an address; CLUSTAR_GDR_EMULATE needs the "
                              "one at which the descriptor is mapped",
                              memory.length, gdr::to_string(memory.kind)));
    }
    memory = gdr::MemoryRef::host(memory.address, memory.length);
  }
  return PortRegions::make(ports_, memory, static_cast<int>(access));
}

void OwnMemory::Free::operator()(std::byte* memory) const { ::operator delete[](memory, kPage); }

Result<OwnMemory> OwnMemory::make(std::span<const Port> ports, std::size_t bytes) {
  bytes = (bytes + 4095) / 4096 * 4096;
  OwnMemory made;
  made.bytes_.reset(static_cast<std::byte*>(::operator new[](bytes, kPage, std::nothrow)));
  if (!made.bytes_) return fail(ErrorCode::kSystem, fmt::format("verbs: no memory for {} bytes", bytes));
  std::memset(made.bytes_.get(), 0, bytes);
  auto regions = PortRegions::make(ports, gdr::MemoryRef::host(made.bytes_.get(), bytes),
                                   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  if (!regions) return tl::unexpected(regions.error());
  made.regions_ = std::move(*regions);
  return made;
}

}  // namespace clustar::transport::verbs
