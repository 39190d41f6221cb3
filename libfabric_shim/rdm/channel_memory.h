// A channel's registered memory.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "libfabric_shim/memory_region.h"
#include "transport/message/memory_anchor.h"

namespace clustar::transport::ofi {

template <class Channel>
class ChannelMemory final : public Mr {
 public:
  using Anchor = std::shared_ptr<MemoryAnchor<Channel>>;
  // Host memory only. Any thread. Error: another kind, or libfabric's.
  static Result<std::unique_ptr<Mr>> make(Domain& domain, const gdr::MemoryRef& memory, Anchor anchor) {
    if (memory.kind != gdr::MemoryKind::kHost) {
      return fail(ErrorCode::kInvalidArgument,
                  std::string("ofi registers host memory only, not ") + gdr::to_string(memory.kind));
    }
    auto region = MemoryRegion::make(domain, memory.address, memory.length);
    if (!region) return tl::unexpected(region.error());
    return std::unique_ptr<Mr>(new ChannelMemory(memory, std::move(*region), std::move(anchor)));
  }
  ~ChannelMemory() override { anchor_->deregister(*this); }

  // The memory is used by no message, or the channel settled them.
  static void* descriptor(const Mr& mr) { return static_cast<const ChannelMemory&>(mr).region_.descriptor(); }

 private:
  ChannelMemory(const gdr::MemoryRef& memory, MemoryRegion region, Anchor anchor)
      : Mr(memory), region_(std::move(region)), anchor_(std::move(anchor)) {}

  MemoryRegion region_;
  Anchor anchor_;
};

}  // namespace clustar::transport::ofi
