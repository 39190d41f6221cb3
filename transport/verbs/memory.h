// Memory that is registered on every port of a NIC.
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

#include "gdr/core/ranked.h"
#include "gdr/memory.h"
#include "gdr/registration_cache.h"
#include "transport/api/transport.h"
#include "transport/base/log.h"
#include "transport/io/verbs/memory.h"
#include "transport/verbs/device_memory.h"
#include "transport/verbs/port.h"

namespace clustar::transport::verbs {

// One region on each port.
class PortRegions final : public gdr::Registration {
 public:
  static Result<std::unique_ptr<PortRegions>> make(std::span<const Port> ports, const gdr::MemoryRef& memory,
                                                   int access);
  // By one way. `error`: the errno of a failure; 0 where it was none.
  static Result<std::unique_ptr<PortRegions>> make(std::span<const Port> ports, const gdr::MemoryRef& memory,
                                                   int access, gdr::Way way, int* error);

  // As peers and work requests name it, on every port alike.
  std::uint64_t address(std::size_t offset) const { return regions_.front().address(offset); }
  std::uint32_t lkey(std::size_t port) const { return regions_[port].lkey(); }
  std::array<std::uint32_t, kMaxPorts> rkeys() const;
  ibv_sge slice(std::size_t port, std::size_t offset, std::size_t length) const {
    return {address(offset), static_cast<std::uint32_t>(length), lkey(port)};
  }

 private:
  std::vector<io::verbs::MemoryRegion> regions_;
};

// For a NIC's cache: memory goes by the best way that works. Each kind and way, and what was refused before it, is said
// once. `ports`, `device_memory` and `log` stay where they are. One thread at a time, as the cache has it.
class PortRegistrar final : public gdr::Registrar {
 public:
  PortRegistrar(std::span<const Port> ports, const DeviceMemory& device_memory, const Log& log)
      : ports_(ports), device_memory_(device_memory), log_(log) {}
  // `access`: ibv_access_flags.
  Result<std::unique_ptr<gdr::Registration>> register_pages(const gdr::MemoryRef& pages, std::uint32_t access) override;

  // "dma-buf 3, host 12; refused: data direct 3"; of registrations made. Any thread.
  std::string describe() const;

 private:
  void note(gdr::MemoryKind kind, const gdr::Registered& registered);

  std::span<const Port> ports_;
  const DeviceMemory& device_memory_;
  const Log& log_;
  // By way, and the last of no way.
  std::array<std::uint32_t, gdr::kAllWays.size() + 1> said_{};  // sets of kinds
  std::array<std::atomic<std::uint64_t>, gdr::kAllWays.size()> made_{};
  std::array<std::atomic<std::uint64_t>, gdr::kAllWays.size()> refused_{};
};

// A user's memory, which other memory of theirs may share its regions with. Nothing is registered of an empty one.
class Regions {
 public:
  explicit Regions(gdr::RegistrationCache::Lease lease)
      : lease_(std::move(lease)),
        regions_(lease_.empty() ? nullptr : &static_cast<const PortRegions&>(lease_.registration())) {}

  bool empty() const { return regions_ == nullptr; }
  // As peers and work requests name it, on every port alike; 0 of an empty memory.
  std::uint64_t address(std::size_t offset) const { return empty() ? 0 : regions_->address(lease_.offset() + offset); }
  std::uint32_t lkey(std::size_t port) const { return empty() ? 0 : regions_->lkey(port); }
  std::array<std::uint32_t, kMaxPorts> rkeys() const {
    return empty() ? std::array<std::uint32_t, kMaxPorts>{} : regions_->rkeys();
  }
  ibv_sge slice(std::size_t port, std::size_t offset, std::size_t length) const {
    return {address(offset), static_cast<std::uint32_t>(length), lkey(port)};
  }

 private:
  gdr::RegistrationCache::Lease lease_;
  const PortRegions* regions_;
};

// The only Mr that this transport gives out.
class VerbsMr : public Mr {
 public:
  VerbsMr(const gdr::MemoryRef& memory, Regions regions) : Mr(memory), regions_(std::move(regions)) {}
  const Regions& regions() const { return regions_; }

 private:
  Regions regions_;
};

inline const Regions& regions_of(const Mr& mr) { return static_cast<const VerbsMr&>(mr).regions(); }

// Zeroed memory of a channel's own, whose regions no other memory shares.
class OwnMemory {
 public:
  static Result<OwnMemory> make(std::span<const Port> ports, std::size_t bytes);

  template <std::size_t Size>
  std::span<std::byte, Size> at(std::size_t offset) const {
    return std::span<std::byte, Size>(bytes_.get() + offset, Size);
  }
  std::byte* data() const { return bytes_.get(); }
  const PortRegions& regions() const { return *regions_; }

 private:
  struct Free {
    void operator()(std::byte* memory) const;
  };
  std::unique_ptr<std::byte[], Free> bytes_;  // before regions_: freed after they are deregistered
  std::unique_ptr<PortRegions> regions_;
};

}  // namespace clustar::transport::verbs
