#include "transport/verbs/memory.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

namespace clustar::transport::verbs {
namespace {

// Whole pages of our own: a page that is shared with other data must not be pinned.
constexpr std::align_val_t kPage{4096};

// What the driver is given: a pointer for nvidia_peermem, and what plays a GPU's memory as the host memory it is. The
// cache has looked at a played descriptor and holds a duplicate, as of a real one.
gdr::MemoryRef as_registered(const gdr::MemoryRef& memory, gdr::Way way) {
  if (way == gdr::Way::kPeermem) return {gdr::MemoryKind::kCuda, memory.address, memory.length, -1, 0};
  if (way == gdr::Way::kEmulated) return gdr::MemoryRef::host(memory.address, memory.length);
  return memory;
}

}  // namespace

Result<std::unique_ptr<PortRegions>> PortRegions::make(std::span<const Port> ports, const gdr::MemoryRef& memory,
                                                       int access) {
  return make(ports, memory, access, gdr::Way::kHost, nullptr);
}

Result<std::unique_ptr<PortRegions>> PortRegions::make(std::span<const Port> ports, const gdr::MemoryRef& memory,
                                                       int access, gdr::Way way, int* error) {
  auto made = std::make_unique<PortRegions>();
  made->regions_.reserve(ports.size());
  for (const Port& port : ports) {
    auto region = way == gdr::Way::kDataDirect
                      ? io::verbs::MemoryRegion::make_data_direct(port.domain, memory, access, error)
                      : io::verbs::MemoryRegion::make(port.domain, memory, access, error);
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
  if (device_memory_.facts.emulated && pages.kind != gdr::MemoryKind::kHost && pages.address == nullptr) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("verbs: {} bytes of emulated {} memory without an address; CLUSTAR_GDR_EMULATE needs the "
                            "one at which the descriptor is mapped",
                            pages.length, gdr::to_string(pages.kind)));
  }
  std::unique_ptr<PortRegions> made;
  Error last{ErrorCode::kSystem, ""};
  constexpr int kRelaxed = IBV_ACCESS_RELAXED_ORDERING;
  const auto wanted = static_cast<int>(access);
  const gdr::Registered registered = gdr::register_ranked(
      gdr::rank_ways(pages, device_memory_.facts), (wanted & kRelaxed) != 0, [&](gdr::Way way, bool relaxed) {
        int error = 0;
        auto regions =
            PortRegions::make(ports_, as_registered(pages, way), relaxed ? wanted : wanted & ~kRelaxed, way, &error);
        if (regions) made = std::move(*regions);
        if (!regions) last = regions.error();
        return regions || error != 0 ? error : EIO;
      });
  note(pages.kind, registered);
  if (made) return made;
  // Of host memory the call's own error says all there is to say.
  if (pages.kind == gdr::MemoryKind::kHost) return tl::unexpected(last);
  return fail(ErrorCode::kSystem, "verbs: " + gdr::explain(device_memory_.facts.nic, pages.kind, registered));
}

void PortRegistrar::note(gdr::MemoryKind kind, const gdr::Registered& registered) {
  for (const gdr::Refusal& refusal : registered.refused) {
    if (refusal.error != 0) refused_[static_cast<std::size_t>(refusal.way)].fetch_add(1, std::memory_order_relaxed);
  }
  const std::size_t way = registered.way ? static_cast<std::size_t>(*registered.way) : gdr::kAllWays.size();
  if (registered.way) made_[way].fetch_add(1, std::memory_order_relaxed);
  if ((said_[way] & gdr::bit(kind)) != 0) return;
  said_[way] |= gdr::bit(kind);
  // That host memory is registered as host memory is no news.
  if (kind == gdr::MemoryKind::kHost && registered.refused.empty()) return;
  log_.info("verbs: " + gdr::explain(device_memory_.facts.nic, kind, registered));
}

std::string PortRegistrar::describe() const {
  const auto list = [](const auto& counts) {
    std::string text;
    for (const gdr::Way way : gdr::kAllWays) {
      const std::uint64_t count = counts[static_cast<std::size_t>(way)].load(std::memory_order_relaxed);
      if (count > 0) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", gdr::to_string(way), count);
    }
    return text;
  };
  const std::string made = list(made_);
  const std::string refused = list(refused_);
  return (made.empty() ? "nothing" : made) + (refused.empty() ? "" : "; refused: " + refused);
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
