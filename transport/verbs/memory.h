// Memory that is registered on every port of a NIC.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "gdr/memory.h"
#include "transport/api/transport.h"
#include "transport/io/verbs/memory.h"
#include "transport/verbs/port.h"

namespace clustar::transport::verbs {

class Regions {
 public:
  Regions() = default;
  // Nothing is registered of an empty memory.
  static Result<Regions> make(std::span<const Port> ports, const gdr::MemoryRef& memory, int access);

  bool empty() const { return regions_.empty(); }
  // As peers and work requests name it, on every port alike; 0 of an empty memory.
  std::uint64_t address(std::size_t offset) const { return empty() ? 0 : regions_.front().address(offset); }
  std::uint32_t lkey(std::size_t port) const { return empty() ? 0 : regions_[port].lkey(); }
  std::array<std::uint32_t, kMaxPorts> rkeys() const;
  ibv_sge slice(std::size_t port, std::size_t offset, std::size_t length) const {
    return {address(offset), static_cast<std::uint32_t>(length), lkey(port)};
  }

 private:
  std::vector<io::verbs::MemoryRegion> regions_;
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

// Zeroed memory of a channel's own.
class OwnMemory {
 public:
  static Result<OwnMemory> make(std::span<const Port> ports, std::size_t bytes);

  template <std::size_t Size>
  std::span<std::byte, Size> at(std::size_t offset) const {
    return std::span<std::byte, Size>(bytes_.get() + offset, Size);
  }
  std::byte* data() const { return bytes_.get(); }
  const Regions& regions() const { return regions_; }

 private:
  struct Free {
    void operator()(std::byte* memory) const;
  };
  std::unique_ptr<std::byte[], Free> bytes_;  // before regions_: freed after they are deregistered
  Regions regions_;
};

}  // namespace clustar::transport::verbs
