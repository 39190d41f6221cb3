// A transport that takes device memory, for tests of the plugin above it: TCP below, "device memory" is host memory.
#pragma once

#include <memory>

#include "transport/api/transport.h"
#include "transport/base/log.h"

namespace clustar::tests {

// The devices of `inner` offer `memory_kinds` and say `gdr` of themselves; `inner` takes host memory. Registrations go
// through a cache, as a NIC's do. It logs each flush ("flush: cuda 100, dma-buf 7") and registration ("registered
// dma-buf: 100 bytes, descriptor open"), and its summary counts the cache's lookups ("3 registrations looked up").
// `swallow`: sends are done without anybody looking at their memory, and arrive nowhere.
std::unique_ptr<transport::Transport> with_device_memory(std::unique_ptr<transport::Transport> inner,
                                                         std::uint32_t memory_kinds, const char* gdr, bool swallow,
                                                         const Log& log);

}  // namespace clustar::tests
