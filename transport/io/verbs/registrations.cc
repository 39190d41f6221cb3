#include "transport/io/verbs/registrations.h"

#include <fmt/format.h>

#include <cerrno>
#include <utility>

namespace clustar::transport::io::verbs {
namespace {

// What the driver is given: a pointer for nvidia_peermem, and what plays a GPU's memory as the host memory it is. The
// cache has looked at a played descriptor and holds a duplicate, as of a real one.
gdr::MemoryRef as_registered(const gdr::MemoryRef& memory, gdr::Way way) {
  if (way == gdr::Way::kPeermem) return {gdr::MemoryKind::kCuda, memory.address, memory.length, -1, 0};
  if (way == gdr::Way::kEmulated) return gdr::MemoryRef::host(memory.address, memory.length);
  return memory;
}

}  // namespace

Result<std::unique_ptr<DomainRegions>> DomainRegions::make(const Domains& domains, const gdr::MemoryRef& memory,
                                                           int access, gdr::Way way, int* error) {
  auto made = std::make_unique<DomainRegions>();
  made->regions_.reserve(domains.size());
  for (const ProtectionDomain* domain : domains) {
    auto region = way == gdr::Way::kDataDirect ? MemoryRegion::make_data_direct(*domain, memory, access, error)
                                               : MemoryRegion::make(*domain, memory, access, error);
    if (!region) return tl::unexpected(region.error());
    made->regions_.push_back(std::move(*region));
  }
  return made;
}

Result<std::unique_ptr<gdr::Registration>> DomainRegistrar::register_pages(const gdr::MemoryRef& pages,
                                                                           std::uint32_t access) {
  if (device_memory_.facts.emulated && pages.kind != gdr::MemoryKind::kHost && pages.address == nullptr) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("verbs: {} bytes of emulated {} memory without an address; CLUSTAR_GDR_EMULATE needs the "
                            "one at which the descriptor is mapped",
                            pages.length, gdr::to_string(pages.kind)));
  }
  std::unique_ptr<DomainRegions> made;
  Error last{ErrorCode::kSystem, ""};
  constexpr int kRelaxed = IBV_ACCESS_RELAXED_ORDERING;
  const auto wanted = static_cast<int>(access);
  const gdr::Registered registered = gdr::register_ranked(
      gdr::rank_ways(pages, device_memory_.facts), (wanted & kRelaxed) != 0, [&](gdr::Way way, bool relaxed) {
        int error = 0;
        auto regions = DomainRegions::make(domains_, as_registered(pages, way), relaxed ? wanted : wanted & ~kRelaxed,
                                           way, &error);
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

void DomainRegistrar::note(gdr::MemoryKind kind, const gdr::Registered& registered) {
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

std::string DomainRegistrar::describe() const {
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

}  // namespace clustar::transport::io::verbs
