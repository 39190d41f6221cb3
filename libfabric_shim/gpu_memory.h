// GPU memory by libfabric's FI_HMEM: what a domain promises, and how memory is registered. What libfabric's headers of
// the build do not have is left out: dma-bufs (FI_MR_DMABUF) before 1.20.
#pragma once

#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>

#include <cstdint>
#include <string>

#include "gdr/memory.h"
#include "libfabric_shim/handle.h"
#include "transport/base/result.h"

namespace clustar::transport::ofi {

// What a domain is opened for. kPlayed: host memory plays a GPU's (CLUSTAR_GDR_EMULATE).
enum class GpuUse : std::uint8_t { kNone, kCuda, kPlayed };

// The interface of libfabric that has what GPU memory needs, of those that both the headers and `library`
// (fi_version()) have.
std::uint32_t gpu_api(std::uint32_t library);
// MemoryKind bits besides host memory, of what was found with gpu_api(); 0: it is no domain for GPU memory, and `why`
// says so.
std::uint32_t gpu_kinds(const fi_info& info, std::string& why);

// From now on the endpoint moves GPU memory by the NIC, or refuses: where libfabric copies by CUDA's calls, it may wait
// for NCCL's kernel, which waits for it. Error: the provider does not promise that; or it has no CUDA.
Result<void> forbid_cuda_calls(fid_ep& endpoint, const std::string& where);

struct Registering {
  fid_domain* domain = nullptr;
  std::string where{};    // in errors
  std::uint64_t key = 0;  // for a provider that does not choose it
};
// For messages to and from it. `device`: CUDA's ordinal. A dma-buf's descriptor is used during the call only. Errors:
// libfabric's; kInvalidArgument: a dma-buf, which these headers do not have.
Result<Fid<fid_mr>> register_gpu_memory(const Registering& how, const gdr::MemoryRef& memory, int device);

}  // namespace clustar::transport::ofi
