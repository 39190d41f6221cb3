// The CUDA driver as gdr-check calls it: opened at run time, so that it can say why there is none.
#pragma once

#include <cuda.h>

#include <stdexcept>
#include <string>

namespace clustar::gdr_check {

// Every function that gdr-check calls, by the name that cuda.h gives it (cuMemAlloc is cuMemAlloc_v2).
#define CLUSTAR_GDR_CHECK_CALLS(CALL)  \
  CALL(cuInit);                        \
  CALL(cuDriverGetVersion);            \
  CALL(cuGetErrorName);                \
  CALL(cuDeviceGetCount);              \
  CALL(cuDeviceGet);                   \
  CALL(cuDeviceGetName);               \
  CALL(cuDeviceGetAttribute);          \
  CALL(cuDevicePrimaryCtxRetain);      \
  CALL(cuDevicePrimaryCtxRelease);     \
  CALL(cuCtxPushCurrent);              \
  CALL(cuCtxPopCurrent);               \
  CALL(cuCtxGetCurrent);               \
  CALL(cuCtxSynchronize);              \
  CALL(cuMemAlloc);                    \
  CALL(cuMemFree);                     \
  CALL(cuMemAllocAsync);               \
  CALL(cuMemFreeAsync);                \
  CALL(cuMemAllocManaged);             \
  CALL(cuMemHostAlloc);                \
  CALL(cuMemFreeHost);                 \
  CALL(cuMemGetAllocationGranularity); \
  CALL(cuMemCreate);                   \
  CALL(cuMemRelease);                  \
  CALL(cuMemAddressReserve);           \
  CALL(cuMemAddressFree);              \
  CALL(cuMemMap);                      \
  CALL(cuMemUnmap);                    \
  CALL(cuMemSetAccess);                \
  CALL(cuMemcpyDtoH);                  \
  CALL(cuMemcpyHtoD);                  \
  CALL(cuModuleLoadData);              \
  CALL(cuModuleGetFunction);           \
  CALL(cuModuleUnload);                \
  CALL(cuLaunchKernel);                \
  CALL(cuStreamCreate);                \
  CALL(cuStreamDestroy);               \
  CALL(cuStreamSynchronize);           \
  CALL(cuStreamBeginCapture);          \
  CALL(cuStreamEndCapture);            \
  CALL(cuGraphDestroy)

struct Driver {
#define CLUSTAR_GDR_CHECK_FIELD(name) decltype(&::name) name = nullptr
  CLUSTAR_GDR_CHECK_CALLS(CLUSTAR_GDR_CHECK_FIELD);
#undef CLUSTAR_GDR_CHECK_FIELD

  // Empty, or why there is no driver.
  std::string open();
  std::string name_of(CUresult result) const;
  void check(CUresult result, const char* what) const {
    if (result != CUDA_SUCCESS) throw std::runtime_error(std::string(what) + ": " + name_of(result));
  }
};

}  // namespace clustar::gdr_check
