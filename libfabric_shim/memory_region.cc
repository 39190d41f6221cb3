#include "libfabric_shim/memory_region.h"

#include <utility>

#include "libfabric_shim/failure.h"

namespace clustar::transport::ofi {

Result<MemoryRegion> MemoryRegion::make(Domain& domain, void* memory, std::size_t bytes) {
  MemoryRegion made;
  // Providers differ in whether they take no bytes at all; such messages need no descriptor.
  if (!domain.registers() || bytes == 0) return made;
  const bool chooses = (domain.info().domain_attr->mr_mode & FI_MR_PROV_KEY) == 0;
  fid_mr* region = nullptr;
  const int code = fi_mr_reg(domain.raw(), memory, bytes, FI_SEND | FI_RECV, 0, chooses ? domain.next_key() : 0, 0,
                             &region, nullptr);
  if (code != 0) return tl::unexpected(failure(domain.name(), "fi_mr_reg", code));
  made.region_.reset(region);
  return made;
}

Result<MemoryRegion> MemoryRegion::of_gpu(Domain& domain, const gdr::MemoryRef& memory, int device) {
  if (domain.gpu() == GpuUse::kPlayed) return make(domain, memory.address, memory.length);
  MemoryRegion made;
  const std::uint64_t modes = static_cast<std::uint64_t>(domain.info().domain_attr->mr_mode);
  if ((modes & (FI_MR_LOCAL | FI_MR_HMEM)) == 0 || memory.length == 0) return made;
  const bool chooses = (modes & FI_MR_PROV_KEY) == 0;
  auto region = register_gpu_memory({domain.raw(), domain.name(), chooses ? domain.next_key() : 0}, memory, device);
  if (!region) return tl::unexpected(region.error());
  made.region_ = std::move(*region);
  return made;
}

}  // namespace clustar::transport::ofi
