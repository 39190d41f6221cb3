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

io::verbs::Domains domains_of(std::span<const Port> ports) {
  io::verbs::Domains domains;
  for (const Port& port : ports) domains.push_back(&port.domain);
  return domains;
}

std::array<std::uint32_t, kMaxPorts> rkeys_of(const PortRegions& regions) {
  std::array<std::uint32_t, kMaxPorts> keys{};
  for (std::size_t i = 0; i < regions.size(); ++i) keys[i] = regions.in(i).rkey();
  return keys;
}

void OwnMemory::Free::operator()(std::byte* memory) const { ::operator delete[](memory, kPage); }

Result<OwnMemory> OwnMemory::make(std::span<const Port> ports, std::size_t bytes) {
  bytes = (bytes + 4095) / 4096 * 4096;
  OwnMemory made;
  made.bytes_.reset(static_cast<std::byte*>(::operator new[](bytes, kPage, std::nothrow)));
  if (!made.bytes_) return fail(ErrorCode::kSystem, fmt::format("verbs: no memory for {} bytes", bytes));
  std::memset(made.bytes_.get(), 0, bytes);
  auto regions = PortRegions::make(domains_of(ports), gdr::MemoryRef::host(made.bytes_.get(), bytes),
                                   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  if (!regions) return tl::unexpected(regions.error());
  made.regions_ = std::move(*regions);
  return made;
}

}  // namespace clustar::transport::verbs
