// Memory that is registered on every port of a NIC.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "gdr/memory.h"
#include "gdr/registration_cache.h"
#include "transport/api/transport.h"
#include "transport/base/log.h"
#include "transport/io/verbs/registrations.h"
#include "transport/verbs/device_memory.h"
#include "transport/verbs/port.h"

namespace clustar::transport::verbs {

// The domains of ports that stay where they are.
io::verbs::Domains domains_of(std::span<const Port> ports);

// One region on each port.
using PortRegions = io::verbs::DomainRegions;
std::array<std::uint32_t, kMaxPorts> rkeys_of(const PortRegions& regions);

// For a NIC's cache.
class PortRegistrar final : public io::verbs::DomainRegistrar {
 public:
  PortRegistrar(std::span<const Port> ports, const DeviceMemory& device_memory, const Log& log)
      : DomainRegistrar(domains_of(ports), device_memory, log) {}
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
    return empty() ? std::array<std::uint32_t, kMaxPorts>{} : rkeys_of(*regions_);
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
