// A channel's registered memory.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "libfabric_shim/memory_region.h"
#include "libfabric_shim/rdm/nic.h"
#include "transport/message/memory_anchor.h"

namespace clustar::transport::ofi {

template <class Channel>
class ChannelMemory final : public Mr {
 public:
  using Anchor = std::shared_ptr<MemoryAnchor<Channel>>;
  // Any thread. Error: a kind that the device does not offer, the driver's, or libfabric's.
  static Result<std::unique_ptr<Mr>> make(Nic& nic, const gdr::MemoryRef& memory, Anchor anchor) {
    const Domain& domain = nic.domain();
    int device = -1;
    if (memory.kind != gdr::MemoryKind::kHost) {
      if (domain.gpu() == GpuUse::kNone) {
        return fail(ErrorCode::kInvalidArgument, std::string("ofi: ") + domain.name() +
                                                     " moves host memory only, not " + gdr::to_string(memory.kind) +
                                                     "; CLUSTAR_GDR=staged copies it");
      }
      if (const auto& driver = nic.context().gpu_driver; driver != nullptr) {
        const auto owner = driver->device_of(memory.address);
        if (!owner) return tl::unexpected(owner.error());
        device = *owner;
      }
    }
    std::vector<MemoryRegion> regions;
    for (std::size_t rail = 0; rail < nic.rails(); ++rail) {
      auto region = memory.kind == gdr::MemoryKind::kHost
                        ? MemoryRegion::make(nic.domain(rail), memory.address, memory.length)
                        : MemoryRegion::of_gpu(nic.domain(rail), memory, device);
      if (!region) return tl::unexpected(region.error());
      regions.push_back(std::move(*region));
    }
    return std::unique_ptr<Mr>(new ChannelMemory(memory, device, std::move(regions), std::move(anchor)));
  }
  ~ChannelMemory() override { anchor_->deregister(*this); }

  // The memory is used by no message, or the channel settled them.
  static void* descriptor(const Mr& mr, std::size_t rail) {
    return static_cast<const ChannelMemory&>(mr).regions_[rail].descriptor();
  }
  // CUDA's ordinal; -1: of no GPU.
  static int device(const Mr& mr) { return static_cast<const ChannelMemory&>(mr).device_; }

 private:
  ChannelMemory(const gdr::MemoryRef& memory, int device, std::vector<MemoryRegion> regions, Anchor anchor)
      : Mr(memory), device_(device), regions_(std::move(regions)), anchor_(std::move(anchor)) {}

  const int device_;
  std::vector<MemoryRegion> regions_;  // by rail
  Anchor anchor_;
};

}  // namespace clustar::transport::ofi
