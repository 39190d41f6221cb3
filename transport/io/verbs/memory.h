// Protection domain, registered memory and type-2 memory windows.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "gdr/memory.h"
#include "transport/base/result.h"
#include "transport/io/verbs/device.h"
#include "transport/io/verbs/handle.h"

namespace clustar::transport::io::verbs {

// What belongs together: only memory of its own domain can be used by a queue pair.
class ProtectionDomain {
 public:
  ProtectionDomain(ProtectionDomain&&) = default;
  ProtectionDomain& operator=(ProtectionDomain&&) = delete;
  static Result<ProtectionDomain> make(const Device& device);
  ibv_pd* get() const { return handle_.get(); }
  const std::string& device() const { return device_; }

 private:
  ProtectionDomain() = default;

  std::string device_;
  Handle<ibv_pd> handle_;
};

// How peers and SGEs address the first byte of what is registered: a dma-buf by its offset within its page, because the
// kernel maps whole pages and wants the same offset in both; other memory by its address. Error kInvalidArgument:
// access that this kind of memory cannot have.
Result<std::uint64_t> first_address(const gdr::MemoryRef& memory, int access);

class MemoryRegion {
 public:
  MemoryRegion(MemoryRegion&&) = default;
  MemoryRegion& operator=(MemoryRegion&&) = delete;
  // `access`: ibv_access_flags; without IBV_ACCESS_MW_BIND for a dma-buf. `error`, if given, is the errno of a failure.
  static Result<MemoryRegion> make(const ProtectionDomain& domain, const gdr::MemoryRef& memory, int access,
                                   int* error = nullptr);
  // A dma-buf by mlx5's data direct (data_direct.h). Not run on hardware.
  static Result<MemoryRegion> make_data_direct(const ProtectionDomain& domain, const gdr::MemoryRef& memory, int access,
                                               int* error = nullptr);

  ibv_mr* get() const { return handle_.get(); }
  std::uint32_t lkey() const { return handle_->lkey; }
  std::uint32_t rkey() const { return handle_->rkey; }
  // Address of a byte, as SGEs and peers name it.
  std::uint64_t address(std::size_t offset) const { return base_ + offset; }
  // [offset, offset + length) as what a work request reads or fills.
  ibv_sge slice(std::size_t offset, std::size_t length) const {
    return {address(offset), static_cast<std::uint32_t>(length), lkey()};
  }

 private:
  MemoryRegion() = default;
  static Result<MemoryRegion> make(const ProtectionDomain& domain, const gdr::MemoryRef& memory, int access,
                                   bool data_direct, int* error);

  Handle<ibv_mr> handle_;
  std::uint64_t base_ = 0;
};

// A part of a region that peers may access until it is invalidated, which the owner does by a work request, or a peer
// by a send with invalidation. The region must be registered with IBV_ACCESS_MW_BIND and outlive the window's use.
class MemoryWindow {
 public:
  static Result<MemoryWindow> make(const ProtectionDomain& domain);

  // A key has 8 bits of its own: with more binds an invalidated one would be valid again. Then make another window.
  static constexpr int kMostBinds = 255;

  // The work request that binds an unbound window on a queue pair; post it on a connected one (type 2B belongs to it),
  // and then call posted(). It takes a new rkey, which peers may be told when its completion was taken. Error
  // kInvalidUsage: no bind is left.
  Result<ibv_send_wr> bind(const MemoryRegion& region, std::size_t offset, std::size_t length, int access) const;
  // The last request of bind() was posted: rkey() is its key from now on. One that was refused leaves all as it was.
  void posted(const ibv_send_wr& bind);
  int binds_left() const { return kMostBinds - binds_; }
  // The work request that ends all access; from its successful completion on nothing is written any more.
  ibv_send_wr invalidate() const;
  std::uint32_t rkey() const { return rkey_; }

 private:
  Handle<ibv_mw> handle_;
  std::uint32_t rkey_ = 0;
  int binds_ = 0;
};

}  // namespace clustar::transport::io::verbs
