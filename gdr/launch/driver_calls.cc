#include "gdr/launch/driver_calls.h"

#include <dlfcn.h>
#include <fmt/format.h>

namespace clustar::gdr::launch {
namespace {

struct Entry {
  const char* name;
  void* slot;  // of a pointer to a function
};

}  // namespace

Result<DriverCalls> DriverCalls::open(const std::string& library) {
  void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* const why = dlerror();
    return fail(ErrorCode::kUnavailable,
                fmt::format("cannot open the CUDA driver '{}': {}", library, why == nullptr ? "no reason given" : why));
  }
  DriverCalls calls;
  // By the names that cuda.h gives them for 64-bit addresses.
  const Entry entries[] = {{"cuInit", &calls.init},
                           {"cuGetErrorName", &calls.get_error_name},
                           {"cuDeviceGetCount", &calls.device_get_count},
                           {"cuDeviceGet", &calls.device_get},
                           {"cuDeviceGetName", &calls.device_get_name},
                           {"cuDeviceGetAttribute", &calls.device_get_attribute},
                           {"cuDevicePrimaryCtxRetain", &calls.primary_context_retain},
                           {"cuDevicePrimaryCtxRelease_v2", &calls.primary_context_release},
                           {"cuCtxPushCurrent_v2", &calls.push},
                           {"cuCtxPopCurrent_v2", &calls.pop},
                           {"cuMemAlloc_v2", &calls.memory_allocate},
                           {"cuMemFree_v2", &calls.memory_free},
                           {"cuMemcpyHtoDAsync_v2", &calls.copy_to_device},
                           {"cuMemcpyDtoDAsync_v2", &calls.copy},
                           {"cuMemcpyDtoHAsync_v2", &calls.copy_to_host},
                           {"cuMemsetD32Async", &calls.fill},
                           {"cuStreamCreate", &calls.stream_create},
                           {"cuStreamQuery", &calls.stream_query},
                           {"cuStreamDestroy_v2", &calls.stream_destroy},
                           {"cuEventCreate", &calls.event_create},
                           {"cuEventDestroy_v2", &calls.event_destroy},
                           {"cuEventRecord", &calls.event_record},
                           {"cuModuleLoadData", &calls.module_load},
                           {"cuModuleUnload", &calls.module_unload},
                           {"cuModuleGetFunction", &calls.module_function},
                           {"cuLaunchKernel", &calls.launch}};
  for (const Entry& entry : entries) {
    void* const found = dlsym(handle, entry.name);
    if (found == nullptr) {
      return fail(ErrorCode::kUnavailable, fmt::format("'{}' has no {}: it is no CUDA driver", library, entry.name));
    }
    *static_cast<void**>(entry.slot) = found;
  }
  return calls;
}

}  // namespace clustar::gdr::launch
