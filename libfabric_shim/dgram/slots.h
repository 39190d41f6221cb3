// Buffers of one length, registered where the provider wants that, each with what an operation on it must keep.
#pragma once

#include <rdma/fabric.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "libfabric_shim/domain.h"
#include "libfabric_shim/memory_region.h"

namespace clustar::transport::ofi {

class Slots {
 public:
  // All are free. The domain outlives them. Error: libfabric's.
  static Result<Slots> make(Domain& domain, std::size_t count, std::size_t bytes_each);

  std::size_t size() const { return contexts_.size(); }
  bool empty() const { return free_.empty(); }
  bool all_free() const { return free_.size() == size(); }
  // The one that was given back last: it may still be in a cache. Needs a free one.
  std::uint32_t take();
  // False, and nothing done: it is free already, or there is none of that number.
  bool give_back(std::uint32_t slot);

  std::span<std::byte> bytes(std::uint32_t slot) { return {memory_.get() + slot * stride_, bytes_each_}; }
  void* context(std::uint32_t slot) { return &contexts_[slot]; }
  std::uint32_t of_context(const void* context) const {
    return static_cast<std::uint32_t>(static_cast<const fi_context2*>(context) - contexts_.data());
  }
  void* descriptor() const { return region_.descriptor(); }

 private:
  std::size_t bytes_each_ = 0;
  std::size_t stride_ = 0;
  std::unique_ptr<std::byte[]> memory_;
  MemoryRegion region_;  // ends before the memory
  std::vector<fi_context2> contexts_;
  std::vector<std::uint32_t> free_;
  std::vector<bool> taken_;
};

}  // namespace clustar::transport::ofi
