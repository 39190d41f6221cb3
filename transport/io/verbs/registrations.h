// What a NIC's cache of registrations (gdr/registration_cache.h) is made of: memory that is registered in each of its
// domains, by the best way that works.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gdr/core/mr_cache.h"
#include "gdr/core/ranked.h"
#include "gdr/memory.h"
#include "transport/base/log.h"
#include "transport/io/verbs/device_memory.h"
#include "transport/io/verbs/memory.h"

namespace clustar::transport::io::verbs {

using Domains = std::vector<const ProtectionDomain*>;

// One region in each domain.
class DomainRegions final : public gdr::Registration {
 public:
  // By one way. `error`: the errno of a failure; 0 where it was none.
  static Result<std::unique_ptr<DomainRegions>> make(const Domains& domains, const gdr::MemoryRef& memory, int access,
                                                     gdr::Way way = gdr::Way::kHost, int* error = nullptr);

  const MemoryRegion& in(std::size_t domain) const { return regions_[domain]; }
  std::size_t size() const { return regions_.size(); }
  // As peers and work requests name it, in every domain alike.
  std::uint64_t address(std::size_t offset) const { return regions_.front().address(offset); }
  std::uint32_t lkey(std::size_t domain) const { return regions_[domain].lkey(); }
  ibv_sge slice(std::size_t domain, std::size_t offset, std::size_t length) const {
    return {address(offset), static_cast<std::uint32_t>(length), lkey(domain)};
  }

 private:
  std::vector<MemoryRegion> regions_;
};

// Memory goes by the best way that works. Each kind and way, and what was refused before it, is said once. The domains,
// `device_memory` and `log` stay where they are. One thread at a time, as the cache has it.
class DomainRegistrar : public gdr::Registrar {
 public:
  DomainRegistrar(Domains domains, const DeviceMemory& device_memory, const Log& log)
      : domains_(std::move(domains)), device_memory_(device_memory), log_(log) {}
  virtual ~DomainRegistrar() = default;
  // `access`: ibv_access_flags.
  Result<std::unique_ptr<gdr::Registration>> register_pages(const gdr::MemoryRef& pages, std::uint32_t access) override;

  // "dma-buf 3, host 12; refused: data direct 3"; of registrations made. Any thread.
  std::string describe() const;

 private:
  void note(gdr::MemoryKind kind, const gdr::Registered& registered);

  const Domains domains_;
  const DeviceMemory& device_memory_;
  const Log& log_;
  // By way, and the last of no way.
  std::array<std::uint32_t, gdr::kAllWays.size() + 1> said_{};  // sets of kinds
  std::array<std::atomic<std::uint64_t>, gdr::kAllWays.size()> made_{};
  std::array<std::atomic<std::uint64_t>, gdr::kAllWays.size()> refused_{};
};

}  // namespace clustar::transport::io::verbs
