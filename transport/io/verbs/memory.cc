#include "transport/io/verbs/memory.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>

#include "transport/io/verbs/data_direct.h"

namespace clustar::transport::io::verbs {

Result<ProtectionDomain> ProtectionDomain::make(const Device& device) {
  ProtectionDomain domain;
  domain.device_ = device.name();
  domain.handle_.reset(ibv_alloc_pd(device.context()));
  if (!domain.handle_) {
    const int error = errno;
    return tl::unexpected(call_failed(Call::kAllocPd, error, device.place()));
  }
  return domain;
}

Result<std::uint64_t> first_address(const gdr::MemoryRef& memory, int access) {
  if (memory.kind != gdr::MemoryKind::kDmaBuf) return reinterpret_cast<std::uintptr_t>(memory.address);
  if ((access & IBV_ACCESS_MW_BIND) != 0) {
    return fail(
        ErrorCode::kInvalidArgument,
        "verbs: no memory windows in a dma-buf: the kernel registers none with IBV_ACCESS_MW_BIND; register GPU "
        "memory by its address (module nvidia_peermem), or without windows");
  }
  const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  return memory.offset & (page - 1);
}

Result<MemoryRegion> MemoryRegion::make(const ProtectionDomain& domain, const gdr::MemoryRef& memory, int access,
                                        int* error) {
  return make(domain, memory, access, false, error);
}

Result<MemoryRegion> MemoryRegion::make_data_direct(const ProtectionDomain& domain, const gdr::MemoryRef& memory,
                                                    int access, int* error) {
  return make(domain, memory, access, true, error);
}

Result<MemoryRegion> MemoryRegion::make(const ProtectionDomain& domain, const gdr::MemoryRef& memory, int access,
                                        bool data_direct, int* failure) {
  const auto first = first_address(memory, access);
  if (!first) {
    if (failure != nullptr) *failure = EINVAL;
    return tl::unexpected(first.error());
  }
  MemoryRegion region;
  region.base_ = *first;
  const bool dma_buf = memory.kind == gdr::MemoryKind::kDmaBuf;
  if (dma_buf && data_direct) {
    region.handle_.reset(DataDirect::library().register_dma_buf(domain.get(), memory, region.base_, access));
  } else if (dma_buf) {
    region.handle_.reset(
        ibv_reg_dmabuf_mr(domain.get(), memory.offset, memory.length, region.base_, memory.fd, access));
  } else {
    region.handle_.reset(ibv_reg_mr(domain.get(), memory.address, memory.length, static_cast<unsigned>(access)));
  }
  if (!region.handle_) {
    const int error = errno;
    if (failure != nullptr) *failure = error;
    const std::string what = fmt::format("{} bytes of {} memory at 0x{:x}, access 0x{:x}", memory.length,
                                         gdr::to_string(memory.kind), region.base_, access);
    return tl::unexpected(
        call_failed(dma_buf ? Call::kRegDmaBuf : Call::kRegMr, error, {.device = domain.device()}, what));
  }
  return region;
}

Result<MemoryWindow> MemoryWindow::make(const ProtectionDomain& domain) {
  MemoryWindow window;
  window.handle_.reset(ibv_alloc_mw(domain.get(), IBV_MW_TYPE_2));
  if (!window.handle_) {
    const int error = errno;
    return tl::unexpected(call_failed(Call::kAllocMw, error, {.device = domain.device()}, "type 2"));
  }
  window.rkey_ = window.handle_->rkey;
  return window;
}

Result<ibv_send_wr> MemoryWindow::bind(const MemoryRegion& region, std::size_t offset, std::size_t length,
                                       int access) const {
  if (binds_left() <= 0) {
    return fail(ErrorCode::kInvalidUsage,
                fmt::format("verbs: a memory window was bound {} times, and its next key would "
                            "be one that peers know: make another window",
                            binds_));
  }
  // Providers take the key that the window has now from its struct, and do not all update it when they bind.
  handle_->rkey = rkey_;
  ibv_send_wr request{};
  request.opcode = IBV_WR_BIND_MW;
  request.send_flags = IBV_SEND_SIGNALED;
  request.bind_mw.mw = handle_.get();
  request.bind_mw.rkey = ibv_inc_rkey(rkey_);
  request.bind_mw.bind_info = {region.get(), region.address(offset), length, static_cast<unsigned>(access)};
  return request;
}

void MemoryWindow::posted(const ibv_send_wr& bind) {
  rkey_ = bind.bind_mw.rkey;
  ++binds_;
}

ibv_send_wr MemoryWindow::invalidate() const {
  ibv_send_wr request{};
  request.opcode = IBV_WR_LOCAL_INV;
  request.send_flags = IBV_SEND_SIGNALED;
  request.invalidate_rkey = rkey_;
  return request;
}

}  // namespace clustar::transport::io::verbs
