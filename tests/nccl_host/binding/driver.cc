#include "tests/nccl_host/binding/driver.h"

#include <cuda.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <string>
#include <string_view>

#include "tests/nccl_host/binding/emulated_device.h"
#include "tests/nccl_host/binding/unsupported.h"

struct NamedKernel {
  const char* name;
  const void* symbol;
};
extern const NamedKernel clustar_kernel_symbols[];

namespace nccl_host {
namespace {

char only_context;
CUcontext Context() { return reinterpret_cast<CUcontext>(&only_context); }

CUresult DeviceGet(CUdevice* device, int ordinal) {
  *device = 0;
  return ordinal == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
CUresult DeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice) {
  return *value = DeviceAttribute(attribute), CUDA_SUCCESS;
}
// Each process has a device of its own.
CUresult DeviceGetUuid(CUuuid* uuid, CUdevice) {
  *uuid = {};
  const pid_t process = getpid();
  std::memcpy(uuid->bytes, &process, sizeof(process));
  return CUDA_SUCCESS;
}
CUresult GetErrorString(CUresult, const char** text) { return *text = "emulated driver error", CUDA_SUCCESS; }
CUresult CtxGetCurrent(CUcontext* context) { return *context = Context(), CUDA_SUCCESS; }
CUresult CtxSetCurrent(CUcontext) { return CUDA_SUCCESS; }
CUresult CtxCreate(CUcontext* context, void*, int, unsigned, CUdevice) { return *context = Context(), CUDA_SUCCESS; }
CUresult CtxDestroy(CUcontext) { return CUDA_SUCCESS; }
CUresult CtxGetDevice(CUdevice* device) { return *device = 0, CUDA_SUCCESS; }

CUresult MemGetAddressRange(CUdeviceptr* begin, size_t* size, CUdeviceptr pointer) {
  const auto range = DeviceMemory().Find(reinterpret_cast<const void*>(pointer));
  if (!range) return CUDA_ERROR_NOT_FOUND;
  if (begin) *begin = range->begin;
  if (size) *size = range->size;
  return CUDA_SUCCESS;
}

// An all-gather of 2.30 asks it before it asks whether there is any cuMem. As an H100 has it.
CUresult MemGetAllocationGranularity(size_t* granularity, const CUmemAllocationProp*,
                                     CUmemAllocationGranularity_flags) {
  return *granularity = size_t{2} << 20, CUDA_SUCCESS;
}

CUresult PointerGetAttribute(void* value, CUpointer_attribute attribute, CUdeviceptr pointer) {
  const auto range = DeviceMemory().Find(reinterpret_cast<const void*>(pointer));
  if (!range) return CUDA_ERROR_INVALID_VALUE;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      *static_cast<unsigned*>(value) = range->kind == MemoryKind::kDevice ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID: *static_cast<unsigned long long*>(value) = range->begin; return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE: *static_cast<int*>(value) = 0; return CUDA_SUCCESS;
    default: return CUDA_ERROR_NOT_SUPPORTED;
  }
}

const char* NameOf(const void* symbol) {
  for (const NamedKernel* kernel = clustar_kernel_symbols; kernel->name; ++kernel) {
    if (kernel->symbol == symbol) return kernel->name;
  }
  return "a kernel that is not in NCCL's tables";
}

CUresult LaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void**, void** extra) {
  const char* name = NameOf(reinterpret_cast<const void*>(function));
  if (!std::string_view(name).starts_with("ncclDevKernel_"))
    NotEmulated(name, "symmetric memory and one-sided kernels need a GPU");
  const void* arguments = nullptr;
  size_t size = 0;
  for (void** pair = extra; pair && pair[0] != CU_LAUNCH_PARAM_END; pair += 2) {
    if (pair[0] == CU_LAUNCH_PARAM_BUFFER_POINTER) arguments = pair[1];
    if (pair[0] == CU_LAUNCH_PARAM_BUFFER_SIZE) size = *static_cast<size_t*>(pair[1]);
  }
  if (!arguments || size == 0) return CUDA_ERROR_INVALID_VALUE;
  LaunchNcclKernel(arguments, size, StreamOf(config->hStream));
  return CUDA_SUCCESS;
}

CUresult LaunchKernel(CUfunction function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                      CUstream stream, void** parameters, void** extra) {
  CUlaunchConfig config{};
  config.hStream = stream;
  return LaunchKernelEx(&config, function, parameters, extra);
}

}  // namespace

void* DriverEntryPoint(const char* name) {
  static const std::map<std::string_view, void*> functions{
      {"cuDeviceGet", reinterpret_cast<void*>(DeviceGet)},
      {"cuDeviceGetAttribute", reinterpret_cast<void*>(DeviceGetAttribute)},
      {"cuDeviceGetUuid", reinterpret_cast<void*>(DeviceGetUuid)},
      {"cuGetErrorString", reinterpret_cast<void*>(GetErrorString)},
      {"cuGetErrorName", reinterpret_cast<void*>(GetErrorString)},
      {"cuCtxGetCurrent", reinterpret_cast<void*>(CtxGetCurrent)},
      {"cuCtxSetCurrent", reinterpret_cast<void*>(CtxSetCurrent)},
      {"cuCtxCreate", reinterpret_cast<void*>(CtxCreate)},
      {"cuCtxDestroy", reinterpret_cast<void*>(CtxDestroy)},
      {"cuCtxGetDevice", reinterpret_cast<void*>(CtxGetDevice)},
      {"cuMemGetAddressRange", reinterpret_cast<void*>(MemGetAddressRange)},
      {"cuMemGetAllocationGranularity", reinterpret_cast<void*>(MemGetAllocationGranularity)},
      {"cuPointerGetAttribute", reinterpret_cast<void*>(PointerGetAttribute)},
      {"cuLaunchKernel", reinterpret_cast<void*>(LaunchKernel)},
      {"cuLaunchKernelEx", reinterpret_cast<void*>(LaunchKernelEx)},
  };
  const auto found = functions.find(name);
  return found == functions.end() ? nullptr : found->second;
}

}  // namespace nccl_host
