// What gdr-check needs of a driver and the module must not: memory of other kinds, kernels, and calls that wait.
#include <sys/mman.h>

#include <cstring>

#include "tests/gdr/fake_libcuda/state.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

struct CUfunc_st {
  bool copies;
};

namespace clustar::tests {
namespace {

CUresult add(const char* function, CUdeviceptr& at, std::size_t bytes, const char* type, int legacy) {
  FakeCall call(function);
  if (call.refused()) return call.answer();
  void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  FakeMemory& added = call.state().memories.emplace_back();
  added.name = "(made)";
  added.base = static_cast<std::byte*>(mapped);
  added.size = bytes;
  added.type = type;
  added.attributes[CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE] = legacy;
  added.attributes[CU_POINTER_ATTRIBUTE_IS_MANAGED] = added.type == "managed" ? 1 : 0;
  at = reinterpret_cast<CUdeviceptr>(mapped);
  return CUDA_SUCCESS;
}

CUresult remove(const char* function, CUdeviceptr at) {
  FakeCall call(function);
  const auto gone = call.state().memories.remove_if([&](const FakeMemory& one) {
    if (one.base != reinterpret_cast<std::byte*>(at) || one.name != "(made)") return false;
    munmap(one.base, one.size);
    return true;
  });
  return gone == 1 ? CUDA_SUCCESS : call.state().misused("memory freed that is not there", CUDA_ERROR_INVALID_VALUE);
}

CUfunc_st copy_kernel{true};
CUfunc_st wait_kernel{false};

}  // namespace
}  // namespace clustar::tests

using clustar::tests::FakeCall;

EXPORT CUresult cuDeviceGetName(char* name, int length, CUdevice) {
  std::strncpy(name, "no GPU (stand-in)", static_cast<std::size_t>(length));
  return FakeCall("cuDeviceGetName").answer();
}
EXPORT CUresult cuMemAllocAsync(CUdeviceptr* at, std::size_t bytes, CUstream) {
  return clustar::tests::add("cuMemAllocAsync", *at, bytes, "device", 0);
}
EXPORT CUresult cuMemFreeAsync(CUdeviceptr at, CUstream) { return clustar::tests::remove("cuMemFreeAsync", at); }
EXPORT CUresult cuMemAllocManaged(CUdeviceptr* at, std::size_t bytes, unsigned) {
  return clustar::tests::add("cuMemAllocManaged", *at, bytes, "managed", 0);
}
EXPORT CUresult cuMemGetAllocationGranularity(std::size_t* bytes, const CUmemAllocationProp*,
                                              CUmemAllocationGranularity_flags) {
  *bytes = 2u << 20;
  return FakeCall("cuMemGetAllocationGranularity").answer();
}
EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, std::size_t, const CUmemAllocationProp* made,
                            unsigned long long) {
  FakeCall call("cuMemCreate");
  *handle = made->allocFlags.gpuDirectRDMACapable != 0 ? 1 : 2;
  return call.answer();
}
EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle) { return FakeCall("cuMemRelease").answer(); }
EXPORT CUresult cuMemAddressReserve(CUdeviceptr* at, std::size_t bytes, std::size_t, CUdeviceptr, unsigned long long) {
  return clustar::tests::add("cuMemAddressReserve", *at, bytes, "device", 0);
}
EXPORT CUresult cuMemAddressFree(CUdeviceptr at, std::size_t) { return clustar::tests::remove("cuMemAddressFree", at); }
EXPORT CUresult cuMemMap(CUdeviceptr at, std::size_t, std::size_t, CUmemGenericAllocationHandle handle,
                         unsigned long long) {
  FakeCall call("cuMemMap", at);
  auto* memory = call.state().holding(at);
  if (memory == nullptr) return CUDA_ERROR_INVALID_VALUE;
  memory->attributes[CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE] = handle == 1 ? 1 : 0;
  return call.answer();
}
EXPORT CUresult cuMemUnmap(CUdeviceptr at, std::size_t) { return FakeCall("cuMemUnmap", at).answer(); }
EXPORT CUresult cuMemSetAccess(CUdeviceptr at, std::size_t, const CUmemAccessDesc*, std::size_t) {
  return FakeCall("cuMemSetAccess", at).answer();
}
EXPORT CUresult cuMemcpyDtoH(void* to, CUdeviceptr from, std::size_t bytes) {
  FakeCall call("cuMemcpyDtoH", from);
  if (call.refused()) return call.answer();
  std::memcpy(to, reinterpret_cast<const void*>(from), bytes);
  return CUDA_SUCCESS;
}
EXPORT CUresult cuMemcpyHtoD(CUdeviceptr to, const void* from, std::size_t bytes) {
  FakeCall call("cuMemcpyHtoD", to);
  if (call.refused()) return call.answer();
  std::memcpy(reinterpret_cast<void*>(to), from, bytes);
  return CUDA_SUCCESS;
}
EXPORT CUresult cuModuleLoadData(CUmodule* module, const void*) {
  *module = reinterpret_cast<CUmodule>(&clustar::tests::copy_kernel);
  return FakeCall("cuModuleLoadData").answer();
}
EXPORT CUresult cuModuleGetFunction(CUfunction* function, CUmodule, const char* name) {
  const bool copies = std::strcmp(name, "clustar_copy") == 0;
  *function = copies ? &clustar::tests::copy_kernel : &clustar::tests::wait_kernel;
  return FakeCall("cuModuleGetFunction").answer();
}
EXPORT CUresult cuModuleUnload(CUmodule) { return FakeCall("cuModuleUnload").answer(); }
// Kernels are done when they are launched; one that waits does not.
EXPORT CUresult cuLaunchKernel(CUfunction function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                               unsigned, CUstream, void** arguments, void**) {
  FakeCall call("cuLaunchKernel");
  if (call.refused()) return call.answer();
  if (function->copies) {
    std::memcpy(*static_cast<void**>(arguments[0]), *static_cast<void**>(arguments[1]),
                *static_cast<unsigned long long*>(arguments[2]) * 16);
  }
  return CUDA_SUCCESS;
}
EXPORT CUresult cuCtxSynchronize() { return FakeCall("cuCtxSynchronize").answer(); }
EXPORT CUresult cuStreamSynchronize(CUstream) { return FakeCall("cuStreamSynchronize").answer(); }
EXPORT CUresult cuStreamBeginCapture(CUstream, CUstreamCaptureMode mode) {
  FakeCall call("cuStreamBeginCapture");
  call.state().capturing = mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
  return call.answer();
}
EXPORT CUresult cuStreamEndCapture(CUstream, CUgraph* graph) {
  FakeCall call("cuStreamEndCapture");
  call.state().capturing = false;
  *graph = nullptr;
  return call.state().misuse.empty() ? call.answer() : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
}
EXPORT CUresult cuGraphDestroy(CUgraph) { return FakeCall("cuGraphDestroy").answer(); }
