// libclustar-cuda.so: all that needs the CUDA driver, behind transport/module.h.

#include "transport/module.h"

#include <dlfcn.h>

#include <cstring>

#include "gdr/cuda/contained.h"
#include "gdr/cuda/copy.h"
#include "gdr/cuda/memory.h"

namespace clustar::gdr::cuda {
namespace {

// The driver's threads run on: its library stays when the module goes.
__attribute__((constructor)) void keep_the_driver() {
  static_cast<void>(dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE));
}

Result<std::unique_ptr<transport::Transport>> create(const transport::TransportContext&) {
  return contained([]() -> Result<std::unique_ptr<transport::Transport>> {
    return fail(ErrorCode::kUnavailable,
                "libclustar-cuda.so brings no transport, but what others need for GPU memory: CLUSTAR_GDR");
  });
}

Result<Description> contained_describe(const void* address) {
  return contained([&] { return describe(address); });
}

Result<DmaBuf> contained_export(const void* address, std::size_t length, bool want_pcie) {
  return contained([&] { return export_dma_buf(address, length, want_pcie); });
}

Result<void> contained_sync_memops(const void* address) {
  return contained([&] { return sync_memops(address); });
}

Result<void> contained_flush(int device) {
  return contained([&] { return flush(device); });
}

Result<std::unique_ptr<DeviceCopy>> contained_open(int device, const CopyOptions& options) {
  return contained([&] { return CudaCopy::open(device, options); });
}

transport::ModuleEntry::Function find(const char* name) {
  using Function = transport::ModuleEntry::Function;
  // By the types of module_api.h: a function of another shape does not compile.
  constexpr Describe kDescribes = contained_describe;
  constexpr ExportDmaBuf kExports = contained_export;
  constexpr SyncMemops kSyncs = contained_sync_memops;
  constexpr Flush kFlushes = contained_flush;
  constexpr OpenCopy kOpens = contained_open;
  const struct {
    const char* name;
    Function function;
  } offers[] = {
      {kDescribe, reinterpret_cast<Function>(kDescribes)}, {kExportDmaBuf, reinterpret_cast<Function>(kExports)},
      {kSyncMemops, reinterpret_cast<Function>(kSyncs)},   {kFlush, reinterpret_cast<Function>(kFlushes)},
      {kOpenCopy, reinterpret_cast<Function>(kOpens)},
  };
  for (const auto& offer : offers) {
    if (std::strcmp(offer.name, name) == 0) return offer.function;
  }
  return nullptr;
}

}  // namespace
}  // namespace clustar::gdr::cuda

extern "C" __attribute__((visibility("default"))) const clustar::transport::ModuleEntry clustar_module;
const clustar::transport::ModuleEntry clustar_module = {.create = clustar::gdr::cuda::create,
                                                        .find = clustar::gdr::cuda::find};
