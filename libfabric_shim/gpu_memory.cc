#include "libfabric_shim/gpu_memory.h"

#include <fmt/format.h>
#include <rdma/fi_errno.h>
#include <sys/uio.h>

#include <algorithm>

#include "libfabric_shim/failure.h"

namespace clustar::transport::ofi {
namespace {

constexpr std::uint32_t kHeaders = FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION);
constexpr std::uint32_t kWithDmaBufs = FI_VERSION(1, 20);

Result<Fid<fid_mr>> register_by(const Registering& how, const fi_mr_attr& attributes, std::uint64_t flags) {
  fid_mr* region = nullptr;
  const int code = fi_mr_regattr(how.domain, &attributes, flags, &region);
  if (code != 0) return tl::unexpected(failure(how.where, "fi_mr_regattr (GPU memory)", code));
  return Fid<fid_mr>(region);
}

fi_mr_attr attributes_of(const Registering& how, int device) {
  fi_mr_attr attributes{};
  attributes.iov_count = 1;
  attributes.access = FI_SEND | FI_RECV;
  attributes.requested_key = how.key;
  attributes.iface = FI_HMEM_CUDA;
  attributes.device.cuda = device;
  return attributes;
}

}  // namespace

std::uint32_t gpu_api(std::uint32_t library) { return std::min({kHeaders, library, kWithDmaBufs}); }

std::uint32_t gpu_kinds(const fi_info& info, std::string& why) {
  if ((info.caps & FI_HMEM) == 0) {
    why = "the domain has no FI_HMEM";
    return 0;
  }
  const std::uint64_t modes = static_cast<std::uint64_t>(info.domain_attr->mr_mode);
  if ((modes & FI_MR_ENDPOINT) != 0 && (modes & (FI_MR_LOCAL | FI_MR_HMEM)) != 0) {
    why = "the domain registers memory for single endpoints (FI_MR_ENDPOINT), which this version does not";
    return 0;
  }
  std::uint32_t kinds = gdr::bit(gdr::MemoryKind::kCuda);
#ifdef FI_MR_DMABUF
  if (FI_VERSION_GE(info.fabric_attr->api_version, kWithDmaBufs)) kinds |= gdr::bit(gdr::MemoryKind::kDmaBuf);
#endif
  return kinds;
}

// CUDA's calls can be forbidden by name since 1.18, where providers with FI_HMEM must answer. 1.17 has the demand for
// transfers from peer to peer, with which no provider has a reason to copy.
Result<void> forbid_cuda_calls(fid_ep& endpoint, const std::string& where) {
#if FI_MAJOR_VERSION > 1 || FI_MINOR_VERSION >= 18
  const bool permitted = false;
  const int code = fi_setopt(&endpoint.fid, FI_OPT_ENDPOINT, FI_OPT_CUDA_API_PERMITTED, &permitted, sizeof(permitted));
  if (code != 0) return tl::unexpected(failure(where, "fi_setopt (FI_OPT_CUDA_API_PERMITTED)", code));
#else
  const int demand = FI_HMEM_P2P_REQUIRED;
  const int code = fi_setopt(&endpoint.fid, FI_OPT_ENDPOINT, FI_OPT_FI_HMEM_P2P, &demand, sizeof(demand));
  if (code != 0) return tl::unexpected(failure(where, "fi_setopt (FI_OPT_FI_HMEM_P2P)", code));
#endif
  return {};
}

Result<Fid<fid_mr>> register_gpu_memory(const Registering& how, const gdr::MemoryRef& memory, int device) {
  fi_mr_attr attributes = attributes_of(how, device);
  if (memory.kind == gdr::MemoryKind::kDmaBuf) {
#ifdef FI_MR_DMABUF
    // libfabric adds the offset to the base again.
    const fi_mr_dmabuf buffer{memory.fd, memory.offset, memory.length, memory.address - memory.offset};
    attributes.dmabuf = &buffer;
    return register_by(how, attributes, FI_MR_DMABUF);
#else
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: dma-bufs need libfabric 1.20 or later; clustar was built with {}.{}", how.where,
                            FI_MAJOR_VERSION, FI_MINOR_VERSION));
#endif
  }
  const iovec range{memory.address, memory.length};
  attributes.mr_iov = &range;
  return register_by(how, attributes, 0);
}

}  // namespace clustar::transport::ofi
