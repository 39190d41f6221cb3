// Memory as a provider wants to have it: registered, where it asks for that (FI_MR_LOCAL, of a GPU's FI_MR_HMEM).
#pragma once

#include <rdma/fi_domain.h>

#include <cstddef>

#include "gdr/memory.h"
#include "libfabric_shim/domain.h"
#include "libfabric_shim/handle.h"

namespace clustar::transport::ofi {

class MemoryRegion {
 public:
  MemoryRegion() = default;
  // For messages to and from it; nobody reaches it from afar. Nothing is registered where the provider does not ask for
  // it. The domain outlives it. Error: libfabric's.
  static Result<MemoryRegion> make(Domain& domain, void* memory, std::size_t bytes);
  // The same of a GPU's, of a domain that was opened for it. `device`: CUDA's ordinal.
  static Result<MemoryRegion> of_gpu(Domain& domain, const gdr::MemoryRef& memory, int device);

  void* descriptor() const { return region_ ? fi_mr_desc(region_.get()) : nullptr; }

 private:
  Fid<fid_mr> region_;
};

}  // namespace clustar::transport::ofi
