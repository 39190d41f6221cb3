// What the driver says of memory, and what it lets NICs do with it. Rules: module_api.h.
#pragma once

#include "gdr/cuda/module_api.h"

namespace clustar::gdr::cuda {

Result<Description> describe(const void* address);
Result<DmaBuf> export_dma_buf(const void* address, std::size_t length, bool want_pcie);
Result<void> sync_memops(const void* address);
Result<void> flush(int device);

}  // namespace clustar::gdr::cuda
